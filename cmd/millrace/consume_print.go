package main

import (
	"fmt"
	"io"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/cmd/millrace/record"
)

// recordPrinter prints records in one of the forms.
type recordPrinter interface {
	print(r *client.Record) error
	flush() error
}

func newRecordPrinter(c *cli.Call, o *consumeOptions) (recordPrinter, error) {
	if o.format != "" && (c.Output == cli.OutputJSON || c.Output == cli.OutputCSV) {
		return nil, cli.Usagef("consume: -f goes with -o text only")
	}
	if o.count {
		return &recordCounter{c: c}, nil
	}
	switch c.Output {
	case cli.OutputJSON:
		return &jsonRecords{out: cli.NewLazyWriter(c.Stdout)}, nil
	case cli.OutputCSV:
		return csvRecords{c.Rows("topic", "partition", "offset", "timestamp", "key", "key_base64", "value", "value_base64", "headers")}, nil
	}
	text := o.format
	if text == "" {
		text = `%s\n`
	}
	format, err := record.ParseFormat(text)
	if err != nil {
		return nil, cli.Usagef("consume: %w", err)
	}
	format.Safe = cli.IsTerminal(c.Stdout)
	return &textRecords{format: format, out: cli.NewLazyWriter(c.Stdout)}, nil
}

// textRecords prints by a format.
type textRecords struct {
	format *record.Format
	out    *cli.LazyWriter
	line   []byte
}

func (p *textRecords) print(r *client.Record) error {
	p.line = p.format.Append(p.line[:0], &record.Placed{Topic: r.Topic, Partition: r.Partition, Record: &r.Record})
	_, err := p.out.Write(p.line)
	return err
}

func (p *textRecords) flush() error { return p.out.Flush() }

// jsonRecords prints an object a line.
type jsonRecords struct {
	out  *cli.LazyWriter
	line []byte
}

func (p *jsonRecords) print(r *client.Record) error {
	p.line = record.AppendJSON(p.line[:0], r.Topic, r.Partition, &r.Record)
	_, err := p.out.Write(p.line)
	return err
}

func (p *jsonRecords) flush() error { return p.out.Flush() }

// csvRecords prints rows.
type csvRecords struct{ rows *cli.RowPrinter }

func (p csvRecords) print(r *client.Record) error {
	key, keyBase64 := record.TextOrBase64(r.Key)
	value, valueBase64 := record.TextOrBase64(r.Value)
	p.rows.Add(r.Topic, r.Partition, r.Offset, record.RFC3339(r.Timestamp), key, keyBase64, value, valueBase64,
		string(record.AppendHeadersJSON(nil, r.Headers)))
	return p.rows.Err()
}

func (p csvRecords) flush() error { return p.rows.Flush() }

// recordCounter prints how many records there were and between which offsets.
type recordCounter struct {
	c     *cli.Call
	all   span
	parts []span // one for each partition where several are read, else nil
}

// span counts records between two offsets.
type span struct {
	n           uint64
	first, last uint64 // meaningless without a record
}

func (s *span) add(offset uint64) {
	if s.n == 0 || offset < s.first {
		s.first = offset
	}
	s.last = max(s.last, offset)
	s.n++
}

// bounds are the offsets, nil where there was no record.
func (s *span) bounds() (first, last *uint64) {
	if s.n == 0 {
		return nil, nil
	}
	return &s.first, &s.last
}

func (p *recordCounter) print(r *client.Record) error {
	p.all.add(r.Offset)
	if p.parts == nil {
		return nil
	}
	for int(r.Partition) >= len(p.parts) { // the topic grew
		p.parts = append(p.parts, span{})
	}
	p.parts[r.Partition].add(r.Offset)
	return nil
}

// countFacts is what --count prints; first and last are null where there was no
// record. Over several partitions they are the least and the greatest of all.
type countFacts struct {
	Records    uint64       `json:"records"`
	First      *uint64      `json:"first"`
	Last       *uint64      `json:"last"`
	Partitions []countOfOne `json:"partitions,omitempty"`
}

// countOfOne is the part of one partition.
type countOfOne struct {
	Partition int     `json:"partition"`
	Records   uint64  `json:"records"`
	First     *uint64 `json:"first"`
	Last      *uint64 `json:"last"`
}

func (p *recordCounter) flush() error {
	facts := countFacts{Records: p.all.n}
	facts.First, facts.Last = p.all.bounds()
	if p.c.Output == cli.OutputCSV { // one row, with the columns it always had
		return p.c.Object(facts, nil)
	}
	for n := range p.parts {
		first, last := p.parts[n].bounds()
		facts.Partitions = append(facts.Partitions, countOfOne{n, p.parts[n].n, first, last})
	}
	line, err := cli.MarshalLine(facts)
	if err != nil {
		return err
	}
	return p.c.Object(facts, func(w io.Writer) { fmt.Fprintf(w, "%s", line) })
}
