package server

import (
	"bytes"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/millrace-mq/millrace/protocol"
)

// counts are the server's counters since it was made.
type counts struct {
	accepted, refusedConns, legacyConns atomic.Uint64
	acceptErrors                        atomic.Uint64
	cutSilent, cutStalled, throttled    atomic.Uint64
	reads, bytesIn, bytesOut            atomic.Uint64
	sendfileBytes, copyBytes            atomic.Uint64 // of delivered runs
	runs, refusedRuns                   atomic.Uint64
	requests, refusedRequests           atomic.Uint64
	delivers                            atomic.Uint64
	subscriptions                       atomic.Int64 // now
}

// Stats returns the numbers of process, broker and server.
func (s *Server) Stats() []protocol.Stat {
	c := &s.counts
	list := append(process(), s.broker.Stats()...)
	return append(list,
		protocol.Stat{Name: "connections", Value: uint64(s.connections())},
		protocol.Stat{Name: "connections_accepted", Value: c.accepted.Load()},
		protocol.Stat{Name: "connections_refused", Value: c.refusedConns.Load()},
		protocol.Stat{Name: "connections_legacy", Value: c.legacyConns.Load()},
		protocol.Stat{Name: "connections_cut_silent", Value: c.cutSilent.Load()},
		protocol.Stat{Name: "connections_cut_stalled", Value: c.cutStalled.Load()},
		protocol.Stat{Name: "accept_errors", Value: c.acceptErrors.Load()},
		protocol.Stat{Name: "reads", Value: c.reads.Load()},
		protocol.Stat{Name: "bytes_in", Value: c.bytesIn.Load()},
		protocol.Stat{Name: "bytes_out", Value: c.bytesOut.Load()},
		protocol.Stat{Name: "bytes_sendfile", Value: c.sendfileBytes.Load()},
		protocol.Stat{Name: "bytes_copied", Value: c.copyBytes.Load()},
		protocol.Stat{Name: "bytes_buffered", Value: s.buffers.total()},
		protocol.Stat{Name: "runs", Value: c.runs.Load()},
		protocol.Stat{Name: "runs_refused", Value: c.refusedRuns.Load()},
		protocol.Stat{Name: "requests", Value: c.requests.Load()},
		protocol.Stat{Name: "requests_refused", Value: c.refusedRequests.Load()},
		protocol.Stat{Name: "delivers", Value: c.delivers.Load()},
		protocol.Stat{Name: "subscriptions", Value: uint64(max(0, c.subscriptions.Load()))},
		protocol.Stat{Name: "backpressure_waits", Value: c.throttled.Load()},
	)
}

// process returns what the operating system and the runtime know of this process.
func process() []protocol.Stat {
	list := []protocol.Stat{
		{Name: "pid", Value: uint64(os.Getpid())},
		{Name: "goroutines", Value: uint64(runtime.NumGoroutine())},
	}
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) == nil {
		list = append(list, protocol.Stat{Name: "cpu_user_nanos", Value: uint64(r.Utime.Nano())},
			protocol.Stat{Name: "cpu_system_nanos", Value: uint64(r.Stime.Nano())},
			protocol.Stat{Name: "cpu_nanos", Value: uint64(r.Utime.Nano() + r.Stime.Nano())})
	}
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := bytes.Fields(b); len(f) > 1 {
			if pages, err := strconv.ParseUint(string(f[1]), 10, 64); err == nil {
				list = append(list, protocol.Stat{Name: "rss_bytes", Value: pages * uint64(os.Getpagesize())})
			}
		}
	}
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() == metrics.KindUint64 {
		list = append(list, protocol.Stat{Name: "heap_bytes", Value: sample[0].Value.Uint64()})
	}
	return list
}
