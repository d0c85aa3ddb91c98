"""Taking what a consumer receives."""


def drain(consumer, count, timeout=60):
    messages = []
    while len(messages) < count:
        batch = consumer.poll(300, timeout=timeout)
        assert batch, f"{len(messages)} of {count} messages within {timeout} s"
        messages += batch
    return messages


def numbers(messages):
    return sorted(int(message.body) for message in messages)
