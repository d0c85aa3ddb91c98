//go:build encrypted

package main

import (
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Releases up to 2.1.2 have no TLS.
var (
	producerOptions = []producer.Option{producer.WithTls(true)}
	consumerOptions = []consumer.Option{consumer.WithTls(true)}
)

// Both versions misspell the name, each in its own way.
const unknownState = primitive.UnkonwnState
