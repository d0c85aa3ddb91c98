// Drives Apache's Go client from the interoperability tests: one command a run, one JSON object a line on standard
// output, exit code 0 only when all that was asked for happened.
//
//	driver send NAMESRV TOPIC COUNT PREFIX [TAG]
//	driver keyed|levels|transaction|ask NAMESRV TOPIC COUNT PREFIX
//	driver created NAMESRV TOPIC COUNT PREFIX
//	driver asked NAMESRV TOPIC COUNT GROUP
//	driver push NAMESRV TOPIC COUNT GROUP [EXPRESSION]
//	driver orderly|fail|answer NAMESRV TOPIC COUNT GROUP
//	driver retry NAMESRV TOPIC RETRIES GROUP
//	driver member NAMESRV TOPIC HANGS GROUP
//
// Message i of a producer has body PREFIX-i, key PREFIX-i and the property "origin" with the value "go"; with `levels` it
// has the delay level i + 1. With `created` the number is that of producers, each with a topic TOPIC-i that its first batch creates.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const timeout = 120 * time.Second

type arguments struct {
	command, topic string
	servers        []string
	count          int
	name           string // a producer's prefix, a consumer's group
	rest           []string
}

// handler is what a consumer does with one message.
type handler func(context.Context, *primitive.MessageExt) (consumer.ConsumeResult, error)

func main() {
	rlog.SetLogLevel("error")
	signal.Notify(stop, syscall.SIGTERM)
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 5 {
		return fmt.Errorf("too few arguments: %q", args)
	}
	count, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	given := arguments{args[0], args[2], []string{args[1]}, count, args[4], append(args[5:], "")}
	commands := map[string]func(arguments) error{
		"send": send, "created": created, "keyed": send, "levels": send, "transaction": transactions, "asked": asked, "ask": ask,
		"push": push, "orderly": orderly, "fail": fail, "retry": retry, "member": member, "answer": answer,
	}
	command, known := commands[given.command]
	if !known {
		return fmt.Errorf("unknown command: %s", given.command)
	}
	return command(given)
}

// messages gives those of `keyed` one of three sharding keys each, in turn.
func messages(given arguments) []*primitive.Message {
	var all []*primitive.Message
	for i := 0; i < given.count; i++ {
		text := fmt.Sprintf("%s-%d", given.name, i)
		message := primitive.NewMessage(given.topic, []byte(text)).WithKeys([]string{text})
		message.WithProperty("origin", "go")
		switch given.command {
		case "keyed":
			message.WithShardingKey(strconv.Itoa(i % 3))
		case "send":
			message.WithTag(given.rest[0])
		case "levels":
			message.WithDelayTimeLevel(i + 1)
		}
		all = append(all, message)
	}
	return all
}

// user signs the requests of clients; empty for none.
var user = primitive.Credentials{
	AccessKey: os.Getenv("ROCKETPY_TEST_ACCESS_KEY"), SecretKey: os.Getenv("ROCKETPY_TEST_SECRET_KEY"),
}

func options(given arguments, group string) []producer.Option {
	options := []producer.Option{producer.WithNameServer(given.servers), producer.WithGroupName(group)}
	if !user.IsEmpty() {
		options = append(options, producer.WithCredentials(user))
	}
	return append(options, producerOptions...)
}

func startProducer(given arguments, group string) (rocketmq.Producer, error) {
	selector := producer.WithQueueSelector(producer.NewHashQueueSelector())
	started, err := rocketmq.NewProducer(append(options(given, group), selector)...)
	if err != nil {
		return nil, err
	}
	return started, started.Start()
}

func send(given arguments) error {
	sender, err := startProducer(given, "interop-go-producer")
	if err != nil {
		return err
	}
	for _, message := range messages(given) {
		result, err := sender.SendSync(context.Background(), message)
		if err != nil {
			return err
		}
		printResult(result)
	}
	return sender.Shutdown()
}

// created has producers send a batch of three messages each, several at a time.
func created(given arguments) error {
	const sideBySide, batch = 8, 3
	numbers, failures := make(chan int), make(chan error, given.count)
	var workers sync.WaitGroup
	for worker := 0; worker < sideBySide; worker++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for number := range numbers {
				if err := createByBatch(given, number, batch); err != nil {
					failures <- fmt.Errorf("%s-%d: %w", given.topic, number, err)
				}
			}
		}()
	}
	for number := 0; number < given.count; number++ {
		numbers <- number
	}
	close(numbers)
	workers.Wait()
	close(failures)
	return <-failures
}

func createByBatch(given arguments, number int, batch int) error {
	name := fmt.Sprintf("%s-%d", given.topic, number)
	instance := producer.WithInstanceName(name)
	sender, err := rocketmq.NewProducer(append(options(given, "interop-go-creator"), instance)...)
	if err != nil {
		return err
	}
	if err := sender.Start(); err != nil {
		return err
	}
	own := given
	own.topic, own.count = name, batch
	result, err := sender.SendSync(context.Background(), messages(own)...)
	if err != nil {
		return err
	}
	printResult(result)
	return sender.Shutdown()
}

// payments says how each transaction ends: message i is committed (i % 4 = 0), rolled back (1), or left open and then
// committed (2) or rolled back (3) when the broker asks.
type payments struct {
	lock  sync.Mutex
	asked map[string]bool
	open  sync.WaitGroup
}

func (p *payments) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch number(message) % 4 {
	case 0:
		return primitive.CommitMessageState
	case 1:
		return primitive.RollbackMessageState
	}
	return unknownState
}

func (p *payments) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	p.lock.Lock()
	defer p.lock.Unlock()
	if key := message.GetKeys(); !p.asked[key] {
		p.asked[key] = true
		printLine(map[string]interface{}{"asked": key})
		p.open.Done()
	}
	if number(&message.Message)%4 == 2 {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func number(message *primitive.Message) int {
	text := message.GetKeys()
	value, err := strconv.Atoi(text[strings.LastIndex(text, "-")+1:])
	if err != nil {
		panic(err)
	}
	return value
}

func transactions(given arguments) error {
	return pay(given, "interop-go-payer", given.count/4*2)
}

// asked ends transactions that others of the group have left, after one of its own, by which the broker gets to know it.
func asked(given arguments) error {
	others := given.count
	given.count = 1
	return pay(given, given.name, others)
}

// pay sends the transactions, and waits until the broker has asked for so many.
func pay(given arguments, group string, open int) error {
	listener := &payments{asked: map[string]bool{}}
	listener.open.Add(open)
	payer, err := rocketmq.NewTransactionProducer(listener, options(given, group)...)
	if err != nil {
		return err
	}
	if err := payer.Start(); err != nil {
		return err
	}
	for _, message := range messages(given) {
		result, err := payer.SendMessageInTransaction(context.Background(), message)
		if err != nil {
			return err
		}
		printResult(result.SendResult)
	}
	// The client answers the broker after its listener has returned, and says nothing of it: the test knows when.
	if err := untilStopped(); err != nil {
		return err
	}
	listener.open.Wait()
	return payer.Shutdown()
}

// ask sends requests one after the other, the odd ones with a callback, and prints each reply.
func ask(given arguments) error {
	asker, err := startProducer(given, "interop-go-asker")
	if err != nil {
		return err
	}
	for i, request := range messages(given) {
		reply, err := (*primitive.Message)(nil), error(nil)
		if i%2 == 0 {
			reply, err = asker.Request(context.Background(), timeout, request)
		} else {
			reply, err = askWithCallback(asker, request)
		}
		if err != nil {
			return err
		}
		printLine(map[string]interface{}{"body": string(reply.Body)})
	}
	// The client confirms a reply after it has handed it over: the one who replied has to see that.
	if err := untilStopped(); err != nil {
		return err
	}
	return asker.Shutdown()
}

func askWithCallback(asker rocketmq.Producer, request *primitive.Message) (*primitive.Message, error) {
	type outcome struct {
		reply *primitive.Message
		err   error
	}
	came := make(chan outcome, 2) // the client calls back once more when the request expires
	err := asker.RequestAsync(context.Background(), timeout, func(_ context.Context, reply *primitive.Message, err error) {
		came <- outcome{reply, err}
	}, request)
	if err != nil {
		return nil, err
	}
	select {
	case one := <-came:
		return one.reply, one.err
	case <-time.After(timeout):
		return nil, fmt.Errorf("no reply to %s", request.GetKeys())
	}
}

// consume runs a push consumer until `handle` has succeeded with as many messages as were asked for.
func consume(given arguments, handle handler, more ...consumer.Option) error {
	reader, left, err := startConsumer(given, handle, more...)
	if err != nil {
		return err
	}
	select {
	case <-left:
		return reader.Shutdown()
	case <-time.After(timeout):
		return fmt.Errorf("not all of %d messages came", given.count)
	}
}

func startConsumer(given arguments, handle handler, more ...consumer.Option) (rocketmq.PushConsumer, <-chan struct{}, error) {
	more = append(more, consumerOptions...)
	if !user.IsEmpty() {
		more = append(more, consumer.WithCredentials(user))
	}
	reader, err := rocketmq.NewPushConsumer(append([]consumer.Option{
		consumer.WithNameServer(given.servers),
		consumer.WithGroupName(given.name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, more...)...)
	if err != nil {
		return nil, nil, err
	}
	var lock sync.Mutex
	left, done := given.count, make(chan struct{})
	onMessages := func(ctx context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range batch {
			printMessage(message)
			result, err := handle(ctx, message)
			if err != nil || result != consumer.ConsumeSuccess {
				return result, err
			}
			lock.Lock()
			if left--; left == 0 {
				close(done)
			}
			lock.Unlock()
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := reader.Subscribe(given.topic, selector(given.rest[0]), onMessages); err != nil {
		return nil, nil, err
	}
	return reader, done, reader.Start()
}

// selector takes tags, or after "sql:" an expression over properties.
func selector(expression string) consumer.MessageSelector {
	if strings.HasPrefix(expression, "sql:") {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: strings.TrimPrefix(expression, "sql:")}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
}

func push(given arguments) error {
	return consume(given, func(context.Context, *primitive.MessageExt) (consumer.ConsumeResult, error) {
		return consumer.ConsumeSuccess, nil
	})
}

// orderly suspends the queue of message 4 once, when it comes for the first time.
func orderly(given arguments) error {
	return consume(given, func(_ context.Context, message *primitive.MessageExt) (consumer.ConsumeResult, error) {
		if number(&message.Message) == 4 && message.ReconsumeTimes == 0 {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return consumer.ConsumeSuccess, nil
	}, consumer.WithConsumerOrder(true), consumer.WithSuspendCurrentQueueTimeMillis(10*time.Millisecond))
}

// member prints that it "began" a message, and "ended" it, in order, until the test kills it; it does not come to an end
// with those whose number is HANGS.
func member(given arguments) error {
	print := func(what string, message *primitive.MessageExt) {
		printLine(map[string]interface{}{
			what:       message.GetKeys(),
			"queue_id": message.Queue.QueueId,
			"at_ms":    time.Now().UnixMilli(),
		})
	}
	hangs := given.count
	given.count = 1 << 30
	_, _, err := startConsumer(given, func(_ context.Context, message *primitive.MessageExt) (consumer.ConsumeResult, error) {
		print("began", message)
		if number(&message.Message) == hangs {
			select {}
		}
		print("ended", message)
		return consumer.ConsumeSuccess, nil
	}, consumer.WithConsumerOrder(true), consumer.WithRebalanceLockInterval(500*time.Millisecond))
	if err != nil {
		return err
	}
	time.Sleep(2 * timeout)
	return fmt.Errorf("nobody ended the driver")
}

// fail handles no message, and prints each that comes, until the test ends it; after its one retry it is dead.
func fail(given arguments) error {
	reader, _, err := startConsumer(given, func(ctx context.Context, _ *primitive.MessageExt) (consumer.ConsumeResult, error) {
		return retrySoon(ctx), nil
	}, consumer.WithMaxReconsumeTimes(1))
	if err != nil {
		return err
	}
	if err := untilStopped(); err != nil {
		return err
	}
	return reader.Shutdown()
}

// retry fails at every message, and prints each attempt, until the test ends it.
func retry(given arguments) error {
	reader, _, err := startConsumer(given, func(_ context.Context, message *primitive.MessageExt) (consumer.ConsumeResult, error) {
		printLine(map[string]interface{}{
			"reconsume_times": message.ReconsumeTimes,
			"of":              message.GetKeys(),
			"came_at_ms":      time.Now().UnixMilli(),
		})
		return consumer.ConsumeRetryLater, nil
	}, consumer.WithMaxReconsumeTimes(int32(given.count)))
	if err != nil {
		return err
	}
	if err := untilStopped(); err != nil {
		return err
	}
	return reader.Shutdown()
}

func retrySoon(ctx context.Context) consumer.ConsumeResult {
	if concurrently, is := primitive.GetConcurrentlyCtx(ctx); is {
		concurrently.DelayLevelWhenNextConsume = 1
	}
	return consumer.ConsumeRetryLater
}

// answer replies to requests with their text after "re:". The client tells the broker of its producers a second after
// their start only, unless they ask on a new topic; until then no reply reaches them, and the request comes again.
func answer(given arguments) error {
	replies, err := startProducer(given, "interop-go-replies")
	if err != nil {
		return err
	}
	err = consume(given, func(ctx context.Context, request *primitive.MessageExt) (consumer.ConsumeResult, error) {
		reply, err := consumer.CreateReplyMessage(request, nil)
		if err != nil {
			return consumer.ConsumeRetryLater, err
		}
		reply.Body = append([]byte("re:"), request.Body...) // CreateReplyMessage takes a body and leaves it out
		if _, err = replies.SendSync(ctx, reply); err != nil {
			return retrySoon(ctx), nil
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	return replies.Shutdown()
}

var stop = make(chan os.Signal, 1)

// untilStopped waits for the test's SIGTERM.
func untilStopped() error {
	select {
	case <-stop:
		return nil
	case <-time.After(timeout):
		return fmt.Errorf("nobody ended the driver")
	}
}

func printResult(result *primitive.SendResult) {
	status := "SEND_OK"
	if result.Status != primitive.SendOK {
		status = fmt.Sprint(result.Status)
	}
	printLine(map[string]interface{}{
		"status":         status,
		"msg_id":         result.MsgID,
		"offset_msg_id":  result.OffsetMsgID,
		"queue_id":       result.MessageQueue.QueueId,
		"queue_offset":   result.QueueOffset,
		"transaction_id": result.TransactionID,
	})
}

func printMessage(message *primitive.MessageExt) {
	printLine(map[string]interface{}{
		"topic":        message.Topic,
		"queue_id":     message.Queue.QueueId,
		"queue_offset": message.QueueOffset,
		"msg_id":       message.MsgId,
		"tag":          orNull(message.GetTags()),
		"keys":         orNull(message.GetKeys()),
		"body":         string(message.Body),
		"origin":       orNull(message.GetProperty("origin")),
	})
}

func orNull(text string) interface{} {
	if text == "" {
		return nil
	}
	return text
}

var output sync.Mutex

func printLine(line map[string]interface{}) {
	output.Lock()
	defer output.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		panic(err)
	}
}
