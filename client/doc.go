// Package client talks to a millrace broker.
//
//	c, err := client.Open(ctx, "127.0.0.1:7654")
//	p, err := c.NewProducer()
//	ack, err := p.Send(ctx, client.Message{Topic: "orders", Key: key, Value: value})
//	for rec, err := range c.Read(ctx, "orders", client.Until(protocol.End)) { … }
//
// # Connections
//
// A Client keeps one connection for producers and requests, and every running Read or Frames
// has one of its own, so that a slow loop delays no acknowledgement. Each is made anew when it
// ends, after jittered exponential pauses; producers open their partitions again and readers
// subscribe behind the last record they yielded. A peer from which nothing came for 2.5 ping
// intervals counts as gone. When the broker says that it goes away, what is in flight is still
// answered.
//
// # Goroutines
//
// Three per connection (read, write, keep), one per Client (keepUp), two per Producer (tell,
// watch). Close and the end of a loop join them.
//
// # Batching
//
// Nothing is configured and nothing waits: a message for an idle partition is sent at once;
// while something is in flight, messages gather until its answer comes or 64 KiB are there. Many
// messages therefore travel in few large batches, and few messages without delay. Linger,
// BatchBytes, BatchRecords and MaxInFlight change that.
//
// # Ownership
//
// Bytes given to Send, Async and Batch.Add are copied. AsyncBatch takes the batch's memory and
// leaves other memory in exchange. A *Record of Read, and a frame of Frames, is valid until the
// loop asks for the next one: Clone what is to be kept.
//
// # Errors
//
// Refusals of the broker are *protocol.Error with actual, limit and the setting that holds it;
// errors.Is matches them by protocol.Code. Of a message that was not acknowledged a
// *DeliveryError says whether it was certainly not sent, or sent with unknown outcome. Nothing
// is given up without an error: a message without callback that failed is counted by the
// *UndeliveredError of the next Flush or Close.
//
// # Not promised
//
// A message that was sent again after a lost connection can be in the log twice: the broker does
// not drop duplicates yet. NoRetry never sends anything again and reports
// protocol.UnknownOutcome instead.
package client
