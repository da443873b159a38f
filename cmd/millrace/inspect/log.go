package inspect

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"unicode/utf8"

	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/cmd/millrace/record"
	"github.com/millrace-mq/millrace/protocol"
)

// logTotals sums up what a dump of a log has seen.
type logTotals struct {
	frames, records  int64
	bytes            int64
	damaged, ordered int64 // stretches without frames; frames out of order
	torn, prepared   int64 // bytes
}

// dumpLog shows the frames of a log.
func dumpLog(ctx context.Context, c *cli.Call, f *os.File, size int64, o Options) error {
	out := newFramePrinter(c, o)
	k := newWalk(f, size)
	if o.At > 0 {
		end, err := k.skipTo(o.At)
		if err != nil {
			return err
		}
		if end {
			last := "it has no frame"
			if k.end > 0 {
				last = fmt.Sprintf("its last one is %d", k.end-1)
			}
			return cli.WithCode(cli.ExitNotFound, fmt.Errorf("%s: offset %d is beyond the end, %s", f.Name(), o.At, last))
		}
	}
	var sum logTotals
	for o.Most == 0 || sum.frames < o.Most {
		if err := ctx.Err(); err != nil {
			return err
		}
		s, ok, err := k.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		sum.count(s)
		if err := out.print(s); err != nil {
			return err
		}
	}
	if err := out.flush(); err != nil {
		return err
	}
	c.Notice("%s", sum)
	if sum.damaged+sum.ordered > 0 {
		return cli.WithCode(cli.ExitDamage, fmt.Errorf("%s: %s", f.Name(), sum.damage()))
	}
	return nil
}

func (t *logTotals) count(s stretch) {
	n := s.end - s.pos
	switch {
	case s.frame != nil:
		t.frames++
		t.records += int64(s.frame.Header().RecordCount())
		t.bytes += n
		if s.why != nil {
			t.ordered++
		}
	case s.why == nil:
		t.prepared += n
	case s.tail:
		t.torn += n
	default:
		t.damaged++
	}
}

// String returns "12 frames, 1200 records, 1.2 MiB; 64 MiB prepared".
func (t logTotals) String() string {
	text := fmt.Sprintf("%s, %s, %s", cli.Plural(int(t.frames), "frame"), cli.Plural(int(t.records), "record"), cli.HumanSize(t.bytes))
	if t.prepared > 0 {
		text += "; " + cli.HumanSize(t.prepared) + " prepared behind them"
	}
	if t.torn > 0 {
		text += "; " + cli.HumanSize(t.torn) + " behind them are no frame: a torn tail, or an append under way"
	}
	return text
}

func (t *logTotals) damage() string {
	stretches := fmt.Sprintf("%d damaged stretches with frames behind them", t.damaged)
	if t.damaged == 1 {
		stretches = "1 damaged stretch with frames behind it"
	}
	return stretches + ", " + cli.Plural(int(t.ordered), "frame") + " out of order"
}

// framePrinter prints stretches: lines as they come, or rows for programs.
type framePrinter struct {
	o     Options
	rows  *cli.RowPrinter // nil for text
	lines *bufio.Writer   // nil for rows
}

var frameColumns = []string{"pos", "offset", "index", "term", "records", "bytes", "timestamp", "kind", "check"}

const frameLine = "%12s  %12s  %10s  %6s  %8s  %9s  %-30s  %-9s  %s\n"

func newFramePrinter(c *cli.Call, o Options) *framePrinter {
	p := &framePrinter{o: o}
	if c.Output == cli.OutputText || c.Output == "" {
		p.lines = bufio.NewWriter(c.Stdout)
		fmt.Fprintf(p.lines, frameLine, "POS", "OFFSET", "INDEX", "TERM", "RECORDS", "BYTES", "TIMESTAMP", "KIND", "CHECK")
		return p
	}
	columns := frameColumns
	if o.Records {
		columns = append(columns[:len(columns):len(columns)], "messages")
	}
	p.rows = c.Rows(columns...)
	return p
}

func (p *framePrinter) flush() error {
	if p.rows != nil {
		return p.rows.Flush()
	}
	return p.lines.Flush()
}

// print shows one stretch.
func (p *framePrinter) print(s stretch) error {
	kind, check := verdict(s)
	size := s.end - s.pos
	if p.rows != nil {
		values := []any{s.pos, nil, nil, nil, nil, size, nil, kind, check}
		if s.frame != nil {
			h := s.frame.Header()
			values = []any{s.pos, h.Offset(), s.frame.Index(), s.frame.Term(), h.RecordCount(), size, record.RFC3339(h.Timestamp()), kind, check}
		}
		if p.o.Records {
			messages, err := messagesOf(s.frame)
			if err != nil {
				values[len(values)-1] = check + ", but " + err.Error()
			}
			values = append(values, messages)
		}
		p.rows.Add(values...)
		return p.rows.Err()
	}
	if s.frame == nil {
		fmt.Fprintf(p.lines, frameLine, itoa(uint64(s.pos)), "-", "-", "-", "-", itoa(uint64(size)), "-", kind, cli.Printable(check))
		return nil
	}
	h := s.frame.Header()
	fmt.Fprintf(p.lines, frameLine, itoa(uint64(s.pos)), itoa(h.Offset()), itoa(s.frame.Index()), itoa(uint64(s.frame.Term())),
		itoa(uint64(h.RecordCount())), itoa(uint64(size)), record.RFC3339(h.Timestamp()), kind, cli.Printable(check))
	if p.o.Hex {
		records := 0
		if p.o.Records {
			records = -1
		}
		return protocol.Describe(p.lines, protocol.Explain(s.frame, records), protocol.Style{Base: s.pos})
	}
	if p.o.Records {
		printMessages(p.lines, s.frame)
	}
	return nil
}

// verdict names a stretch and says whether it is well.
func verdict(s stretch) (kind, check string) {
	switch {
	case s.frame != nil && s.why != nil:
		return kindOfFrame(s.frame), "holds, but " + s.why.Error()
	case s.frame != nil:
		return kindOfFrame(s.frame), "holds"
	case s.why == nil:
		return "prepared", "zeros up to the end of the file"
	case s.tail:
		return "tail", "no frame: " + s.why.Error()
	}
	return "damage", "no frame: " + s.why.Error()
}

// kindOfFrame is messages, or the name of the control record, and what is
// special about the layout.
func kindOfFrame(f protocol.Frame) string {
	p := f.Prelude()
	switch {
	case p.Opcode != protocol.ControlNone:
		return p.Opcode.String()
	case p.Codec != 0:
		return "codec " + strconv.Itoa(int(p.Codec))
	case p.Layout == protocol.LayoutOpaque:
		return "opaque"
	case p.Layout == protocol.LayoutSparse:
		return "sparse"
	}
	return "messages"
}

// messagesOf are the records of a frame, or the positions of an OFFSET record, as JSON.
func messagesOf(f protocol.Frame) ([]json.RawMessage, error) {
	list := []json.RawMessage{}
	err := eachMessage(f, func(r *protocol.Record) {
		line := append([]byte(`{"offset":`), itoa(r.Offset)...)
		list = append(list, append(record.AppendContentJSON(append(line, ','), r), '}'))
	}, func(g protocol.GroupOffset) {
		line := record.AppendJSONString([]byte(`{"group":`), []byte(g.Group))
		list = append(list, append(append(line, `,"offset":`...), itoa(g.Offset)+"}"...))
	})
	return list, err
}

// eachMessage goes through the records of a frame or the positions of an OFFSET record.
//
// Errors: bytes that do not follow the format.
func eachMessage(f protocol.Frame, record func(*protocol.Record), group func(protocol.GroupOffset)) error {
	if f == nil {
		return nil
	}
	if f.Opcode() == protocol.ControlOffset {
		return protocol.DecodeGroupOffsets(f.Body(), group)
	}
	it := protocol.Records(f)
	for it.Next() {
		record(&it.Record)
	}
	return it.Err()
}

// printMessages shows the records of a frame, a line for each.
func printMessages(w io.Writer, f protocol.Frame) {
	err := eachMessage(f, func(r *protocol.Record) {
		fmt.Fprintf(w, "    @%d", r.Offset)
		if r.Key != nil {
			fmt.Fprintf(w, "  key %s", shortQuote(r.Key))
		}
		for name, value, rest, ok := r.Headers.Next(); ok; name, value, rest, ok = rest.Next() {
			fmt.Fprintf(w, "  %s=%s", shortQuote(name), shortQuote(value))
		}
		if r.Value == nil {
			fmt.Fprintln(w, "  tombstone")
			return
		}
		fmt.Fprintf(w, "  %s\n", shortQuote(r.Value))
	}, func(g protocol.GroupOffset) {
		fmt.Fprintf(w, "    group %s at %d\n", shortQuote([]byte(g.Group)), g.Offset)
	})
	if err != nil {
		fmt.Fprintf(w, "    !! %s\n", cli.Printable(err.Error()))
	}
}

// shortQuote shows bytes quoted, cut to what fits a line.
func shortQuote(b []byte) string {
	const most = 100
	if len(b) <= most {
		return strconv.Quote(string(b))
	}
	n := most
	for n > most-utf8.UTFMax && !utf8.RuneStart(b[n]) {
		n--
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.Quote(string(b[:n])), len(b))
}

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }
