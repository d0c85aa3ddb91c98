"""Consumers: receiving messages, by polls or with handlers, and the balance of queues between members."""
