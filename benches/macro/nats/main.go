// The load of NATS JetStream for others.py: nats-load URL CONNECTIONS WINDOW MESSAGES BODY_BYTES.
//
// Each connection publishes its part, with WINDOW messages that wait for their acknowledgement at most. Prints the
// messages that the stream has acknowledged, the seconds, and the 99th percentile of a publish where WINDOW is 1.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

func main() {
	numbers := make([]int, 4)
	for i := range numbers {
		number, err := strconv.Atoi(os.Args[2+i])
		check(err)
		numbers[i] = number
	}
	connections, window, messages, bodyBytes := numbers[0], numbers[1], numbers[2], numbers[3]
	share := messages / connections
	body := make([]byte, bodyBytes)
	latencies := make([][]time.Duration, connections)
	contexts := make([]nats.JetStreamContext, connections)
	for i := range contexts {
		connection, err := nats.Connect(os.Args[1])
		check(err)
		contexts[i], err = connection.JetStream(nats.PublishAsyncMaxPending(window))
		check(err)
	}
	if _, err := contexts[0].StreamInfo("bench"); err != nil {
		_, err := contexts[0].AddStream(&nats.StreamConfig{Name: "bench", Subjects: []string{"bench"}, Storage: nats.FileStorage})
		check(err)
	}
	began := time.Now()
	var all sync.WaitGroup
	for i, stream := range contexts {
		all.Go(func() {
			if window == 1 {
				latencies[i] = oneByOne(stream, body, share)
			} else {
				together(stream, body, share)
			}
		})
	}
	all.Wait()
	figures := map[string]float64{"messages": float64(share * connections), "seconds": time.Since(began).Seconds()}
	if sorted := slices.Concat(latencies...); len(sorted) > 0 {
		slices.Sort(sorted)
		figures["call_p99_us"] = float64(sorted[len(sorted)*99/100].Microseconds())
	}
	check(json.NewEncoder(os.Stdout).Encode(figures))
}

func oneByOne(stream nats.JetStreamContext, body []byte, count int) []time.Duration {
	took := make([]time.Duration, count)
	for i := range took {
		began := time.Now()
		_, err := stream.Publish("bench", body)
		check(err)
		took[i] = time.Since(began)
	}
	return took
}

func together(stream nats.JetStreamContext, body []byte, count int) {
	futures := make([]nats.PubAckFuture, count)
	for i := range futures {
		future, err := stream.PublishAsync("bench", body)
		check(err)
		futures[i] = future
	}
	<-stream.PublishAsyncComplete()
	for i, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			log.Fatal(fmt.Errorf("message %d: %w", i, err))
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
