package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/client/clienttest"
	"github.com/millrace-mq/millrace/protocol"
)

// exampleBroker stands for a broker at 127.0.0.1:7654.
func exampleBroker() (addr string, stop func()) {
	m, err := clienttest.StartMemory(clienttest.MemoryOptions{})
	if err != nil {
		log.Fatal(err)
	}
	return m.Addr(), m.Close
}

func Example() {
	addr, stop := exampleBroker()
	defer stop()
	ctx := context.Background()

	c, err := client.Open(ctx, addr, client.Name("orders-api"))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	p, err := c.NewProducer()
	if err != nil {
		log.Fatal(err)
	}
	ack, err := p.Send(ctx, client.Message{Topic: "orders", Key: []byte("42"), Value: []byte("two teas")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s/%d@%d\n", ack.Topic, ack.Partition, ack.Offset)
	if err := p.Close(ctx); err != nil { // nothing is lost quietly
		log.Fatal(err)
	}

	for rec, err := range c.Read(ctx, "orders", client.From(protocol.Start), client.Until(protocol.End)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %s = %s\n", rec.Offset, rec.Key, rec.Value)
	}
	// Output:
	// orders/0@0
	// 0: 42 = two teas
}

func ExampleProducer_Async() {
	addr, stop := exampleBroker()
	defer stop()
	ctx := context.Background()
	c, err := client.Open(ctx, addr)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	p, err := c.NewProducer(client.MaxBuffered(10_000, 16<<20), client.DeliveryTimeout(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}

	for i := range 3 {
		err := p.Async(client.Message{Topic: "log", Value: fmt.Append(nil, "line ", i)}, func(a client.Ack, err error) {
			var late *client.DeliveryError
			switch {
			case errors.As(err, &late) && late.Sent:
				fmt.Println("perhaps in the log:", err)
			case err != nil:
				fmt.Println("not in the log:", err)
			default:
				fmt.Println("at offset", a.Offset)
			}
		})
		if err != nil { // closed, full or too large: the callback will not come
			log.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// at offset 0
	// at offset 1
	// at offset 2
}

func ExampleProducer_AsyncBatch() {
	addr, stop := exampleBroker()
	defer stop()
	ctx := context.Background()
	c, err := client.Open(ctx, addr)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	p, err := c.NewProducer(client.Durable(protocol.LevelDurable))
	if err != nil {
		log.Fatal(err)
	}

	var b client.Batch // filled again and again
	for range 2 {
		for i := range 100 {
			if err := b.Add(nil, fmt.Append(nil, i)); err != nil {
				log.Fatal(err)
			}
		}
		err := p.AsyncBatch("readings", 0, &b, func(a client.Ack, err error) { fmt.Println("from offset", a.Offset, err) })
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// from offset 0 <nil>
	// from offset 100 <nil>
}

func ExampleClient_Read_follow() {
	addr, stop := exampleBroker()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := client.Open(ctx, addr)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	p, err := c.NewProducer()
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range []string{"one", "two", "three"} {
		if _, err := p.Send(ctx, client.Message{Topic: "news", Value: []byte(v)}); err != nil {
			log.Fatal(err)
		}
	}

	for rec, err := range c.Read(ctx, "news", client.From(protocol.Last(2))) { // without Until: for ever
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println(string(rec.Value))
		if string(rec.Value) == "three" {
			cancel()
		}
	}
	// Output:
	// two
	// three
	// context canceled
}

func ExampleClient_CreateTopic() {
	addr, stop := exampleBroker()
	defer stop()
	ctx := context.Background()
	c, err := client.Open(ctx, addr)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	info, err := c.CreateTopic(ctx, "orders", protocol.TopicSettings{{ID: protocol.SettingPartitions, Value: 3}}, true)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Name, len(info.Partitions))
	for t, err := range c.Topics(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.Name, t.Records)
	}
	// Output:
	// orders 3
	// orders 0
}
