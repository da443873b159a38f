// Package server connects sockets with the broker: it reads frames, has runs appended, sends
// acknowledgements and delivers stored bytes, for the native protocol and for the legacy one on
// the same port.
//
// A connection is one goroutine that reads. Runs are verified where they lie in the read
// buffer, appended with one call per partition and read, and answered with one write. The write
// side has one owner at a time: the reader for a moment, when nobody else writes, or a pump, a
// goroutine that is started when there is something to write and ends when there is not. An
// idle connection is one parked goroutine without a buffer.
//
//	socket ─▶ input ─▶ frames ─▶ runs ─▶ Partition.Append ─▶ acknowledgements ─┐
//	socket ◀─ pump ◀─ outbox ◀──────────────────────────────────────────────────┤
//	             └──── sendfile ◀─ Section ◀─ subscription ◀─ a waiter was woken ┘
package server
