package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace-mq/millrace/cmd/millrace/cli"
)

// mostSealed bounds what is read of a sealed file, in bytes.
const mostSealed = 64 << 20

// sealedFacts is a sealed file:
//
//	millrace <kind> <version> <bytes of body> <xxhash64 of body, 16 hex digits>\n
//	body
type sealedFacts struct {
	Kind    string `json:"kind"`
	Version string `json:"version"`
	Bytes   int    `json:"bytes"`
	Check   string `json:"check"`
	Body    string `json:"body"`
}

const checkHolds = "holds"

func readSealedFacts(f io.ReaderAt, size int64) (sealedFacts, error) {
	if size > mostSealed {
		return sealedFacts{}, fmt.Errorf("%d bytes, at most %d", size, int64(mostSealed))
	}
	all := make([]byte, size)
	n, err := f.ReadAt(all, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return sealedFacts{}, err
	}
	head, body, found := bytes.Cut(all[:n], []byte("\n"))
	fields := strings.Fields(string(head))
	if !found || len(fields) != 5 || fields[0]+" " != sealedMagic {
		return sealedFacts{Bytes: n, Check: "no header of a sealed file"}, nil
	}
	facts := sealedFacts{Kind: fields[1], Version: fields[2], Bytes: len(body), Check: checkHolds, Body: string(body)}
	if sum := fmt.Sprintf("%016x", xxhash.Sum64(body)); fields[3] != strconv.Itoa(len(body)) {
		facts.Check = "the header says " + fields[3] + " bytes"
	} else if fields[4] != sum {
		facts.Check = "does not hold: the body gives " + sum + ", the header says " + fields[4]
	}
	return facts, nil
}

// dumpSealed shows a sealed file.
func dumpSealed(c *cli.Call, f *os.File, size int64) error {
	facts, err := readSealedFacts(f, size)
	if err != nil {
		return err
	}
	err = c.Object(facts, func(w io.Writer) {
		fmt.Fprintf(w, "%s, format %s, %d bytes, check %s\n", cli.Printable(facts.Kind), cli.Printable(facts.Version), facts.Bytes, cli.Printable(facts.Check))
		for line := range strings.Lines(facts.Body) {
			fmt.Fprintln(w, cli.Printable(strings.TrimRight(line, "\n")))
		}
	})
	if err == nil && facts.Check != checkHolds {
		return cli.WithCode(cli.ExitDamage, fmt.Errorf("%s: check %s", f.Name(), facts.Check))
	}
	return err
}

// dumpDir lists what is below a directory, with a word about each file.
func dumpDir(ctx context.Context, c *cli.Call, dir string) error {
	out := c.Rows("file", "kind", "bytes", "about")
	bad := 0
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if !e.Type().IsRegular() {
			return nil
		}
		about, err := describeFile(name)
		if errors.Is(err, fs.ErrNotExist) { // a running broker removed it
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if about.bad {
			bad++
		}
		out.Add(rel, string(about.kind), cli.ByteSize(about.size), about.text)
		return nil
	})
	if err = errors.Join(err, out.Flush()); err != nil {
		return err
	}
	if bad > 0 {
		return cli.WithCode(cli.ExitDamage, fmt.Errorf("%s: %s with a check that does not hold", dir, cli.Plural(bad, "file")))
	}
	return nil
}

// fileFacts is a file of a list.
type fileFacts struct {
	kind fileKind
	size int64
	text string
	bad  bool
}

func describeFile(name string) (facts fileFacts, err error) {
	f, err := os.Open(name)
	if err != nil {
		return facts, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return facts, err
	}
	head := make([]byte, 256)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return facts, err
	}
	head = head[:n]
	facts = fileFacts{kind: kindOfFile(name, head), size: info.Size()}
	switch facts.kind {
	case fileLog:
		facts.text = segmentText(name, logSuffix)
	case fileIndex:
		h, err := decodeIndexHead(head)
		if facts.bad = err != nil; facts.bad {
			facts.text = err.Error()
			return facts, nil
		}
		facts.text = fmt.Sprintf("segment %d, base offset %d, first index %d", h.segment, h.base, h.first)
	case fileSealed:
		sealed, err := readSealedFacts(f, facts.size)
		if err != nil {
			return facts, err
		}
		facts.bad = sealed.Check != checkHolds
		facts.text = sealedText(sealed)
	case fileLock:
		facts.text = "last taken by " + strings.TrimSpace(string(head))
	}
	return facts, nil
}

// segmentText says what the name of a segment says: base offset and id.
func segmentText(name, suffix string) string {
	base, id, ok := strings.Cut(strings.TrimSuffix(filepath.Base(name), suffix), "-")
	offset, err := strconv.ParseUint(base, 10, 64)
	if !ok || err != nil {
		return ""
	}
	return fmt.Sprintf("segment %s, base offset %d", id, offset)
}

// sealedText is a sealed file in one line.
func sealedText(s sealedFacts) string {
	text := fmt.Sprintf("%s, format %s, check %s", s.Kind, s.Version, s.Check)
	var compact bytes.Buffer
	if json.Compact(&compact, []byte(s.Body)) == nil {
		const most = 120
		body := compact.String()
		if len(body) > most {
			body = strings.ToValidUTF8(body[:most], "") + "…"
		}
		text += ": " + body
	}
	return text
}
