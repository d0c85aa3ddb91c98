//go:build !encrypted

package main

import (
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var (
	producerOptions []producer.Option
	consumerOptions []consumer.Option
)

// Both versions misspell the name, each in its own way.
const unknownState = primitive.UnknowState
