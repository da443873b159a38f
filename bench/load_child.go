package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/protocol"
)

// A consumer in a process of its own is given one job and, when everything is
// published, what must have been delivered; it tells how far it is. All of it is
// JSON, a value after the other:
//
//	to it:    consumerJob            then consumerEnd
//	from it:  consumerNews …         the last one has Final
type consumerJob struct {
	Addr       string `json:"addr"`
	Topic      string `json:"topic"`
	Seed       uint64 `json:"seed"`
	Size       int    `json:"size"`
	Producers  int    `json:"producers"`
	Partitions int    `json:"partitions"`
	Limit      uint64 `json:"limit"`  // messages of one producer at most
	Follow     bool   `json:"follow"` // read until the end mark of each partition, not the end as of now
}

type consumerEnd struct {
	Spans []Span `json:"spans"`
}

type consumerNews struct {
	Ready bool          `json:"ready,omitempty"` // connected
	Read  uint64        `json:"read,omitempty"`  // records since the last news
	Done  bool          `json:"done,omitempty"`  // everything is read
	Final *consumerWork `json:"final,omitempty"`
}

// consumerWork is what such a consumer did.
type consumerWork struct {
	Records uint64        `json:"records"`
	Bytes   uint64        `json:"bytes"`
	Elapsed time.Duration `json:"elapsed_ns"` // from connecting, or following: from the first record, to the last
	CPU     time.Duration `json:"cpu_ns"`
	Verify  Verify        `json:"verify"`
}

// newsEvery is how many records a consumer reads between news.
const newsEvery = 1 << 17

// ConsumerMain is the main function of the consumer process of E2E: it takes its job
// from in and reports to out. It ends when in ends before its time, so that it does not
// outlive the process that started it.
//
// If reading fails first, a goroutine is left reading from in; the caller is about to
// exit.
func ConsumerMain(ctx context.Context, in io.Reader, out io.Writer) error {
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	var job consumerJob
	if err := decoder.Decode(&job); err != nil {
		return fmt.Errorf("consumer: job: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ends := make(chan consumerEnd, 1)
	go func() {
		var end consumerEnd
		if err := decoder.Decode(&end); err != nil {
			cancel(fmt.Errorf("consumer: end of job: %w", err))
			return
		}
		ends <- end
	}()
	work, account, err := job.run(ctx, encoder)
	if err != nil {
		return err
	}
	select {
	case end := <-ends:
		if err := account.expect(end.Spans); err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	work.Verify = account.Verify()
	return encoder.Encode(consumerNews{Final: &work})
}

// run reads what the job says.
func (j *consumerJob) run(ctx context.Context, news *json.Encoder) (work consumerWork, account *Accounting, err error) {
	payloads, err := NewPayloads(j.Seed, j.Size)
	if err != nil {
		return work, nil, err
	}
	if account, err = NewAccounting(payloads, j.Producers, j.Partitions, j.Limit); err != nil {
		return work, nil, err
	}
	var untold uint64
	var failed error
	r := reader{topic: j.Topic, see: ledger{account}.observe, add: func(n uint64) {
		if untold += n; untold >= newsEvery && failed == nil {
			failed, untold = news.Encode(consumerNews{Read: untold}), 0
		}
	}}
	options := []client.ReadOption{client.Until(protocol.End)}
	if j.Follow {
		options, r.ends = nil, j.Partitions
	}
	if err := news.Encode(consumerNews{Ready: true}); err != nil {
		return work, nil, err
	}
	before, err := SelfUsage()
	if err != nil {
		return work, nil, err
	}
	began := time.Now()
	if err := r.read(ctx, &Bench{Addr: j.Addr}, "consumer", options...); err != nil {
		return work, nil, err
	}
	after, err := SelfUsage()
	if j.Follow && r.records > 0 {
		began = r.first
	}
	work = consumerWork{Records: r.records, Bytes: r.bytes, Elapsed: r.last.Sub(began), CPU: after.CPU - before.CPU}
	return work, account, errors.Join(err, failed, news.Encode(consumerNews{Read: untold, Done: true}))
}

// consumerProcess is the other end: a running consumer process.
//
// Ownership: one goroutine.
type consumerProcess struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	encoder *json.Encoder
	ready   chan struct{}     // closed when it is connected
	done    chan time.Time    // capacity 1: when it had read everything
	final   chan consumerWork // capacity 1; closed when the process says no more
	failure error             // set before final is closed
}

// startConsumer starts argv, a command that calls ConsumerMain with its standard input
// and output, and gives it its job. It is killed when ctx ends; call stop in any case.
func startConsumer(ctx context.Context, argv []string, job consumerJob, add func(uint64)) (_ *consumerProcess, err error) {
	if len(argv) == 0 {
		return nil, fmt.Errorf("%w: no command for the consumer process", ErrOutOfRange)
	}
	p := &consumerProcess{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...),
		ready: make(chan struct{}), done: make(chan time.Time, 1), final: make(chan consumerWork, 1)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, p.in.Close())
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.listen(out, add)
	p.encoder = json.NewEncoder(p.in)
	if err := p.encoder.Encode(job); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// listen takes the news until there are no more.
func (p *consumerProcess) listen(out io.Reader, add func(uint64)) {
	defer close(p.final)
	decoder := json.NewDecoder(out)
	ready := false
	for {
		var news consumerNews
		if err := decoder.Decode(&news); err != nil {
			p.failure = fmt.Errorf("consumer process: its report ended: %w", err)
			return
		}
		if news.Ready && !ready {
			ready = true
			close(p.ready)
		}
		add(news.Read)
		if news.Done {
			p.done <- time.Now()
		}
		if news.Final != nil {
			p.final <- *news.Final
			return
		}
	}
}

// connected waits until the process is.
func (p *consumerProcess) connected(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case <-p.final:
		return p.failure
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finish tells what must have been delivered and waits for the account, and for when
// everything was read.
func (p *consumerProcess) finish(ctx context.Context, spans []Span) (work consumerWork, at time.Time, err error) {
	if err := p.encoder.Encode(consumerEnd{spans}); err != nil {
		return work, at, fmt.Errorf("consumer process: %w", err)
	}
	select {
	case work, ok := <-p.final:
		if !ok {
			return work, at, p.failure
		}
		return work, <-p.done, nil
	case <-ctx.Done():
		return work, at, context.Cause(ctx)
	}
}

// stopTimeout bounds the wait for a child process that was asked to end.
const stopTimeout = 10 * time.Second

// stop ends the process, at the latest after 10 s by force, and waits for it.
func (p *consumerProcess) stop() error {
	closed := p.in.Close()
	late := time.AfterFunc(stopTimeout, func() {
		_ = p.cmd.Process.Kill() // it may have ended just now
	})
	defer late.Stop()
	return errors.Join(closed, p.cmd.Wait())
}
