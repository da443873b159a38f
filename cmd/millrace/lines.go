package main

import (
	"bufio"
	"errors"
	"io"

	"github.com/millrace-mq/millrace/protocol"
)

// eachLine calls take for every line of r without its LF; the last one may lack
// it. The bytes are valid during the call.
//
// Errors: those of r and take; TooLarge for a line longer than a message may be.
func eachLine(r io.Reader, take func(line []byte) error) error {
	in := bufio.NewReaderSize(r, 256<<10)
	var long []byte // the beginning of a line that does not fit the buffer
	for {
		part, err := in.ReadSlice('\n')
		if len(long)+len(part) > protocol.MaxMessageBytes+1 {
			return &protocol.Error{Code: protocol.TooLarge, Detail: "line", Actual: uint64(len(long) + len(part)),
				Limit: protocol.MaxMessageBytes, Setting: "max_message_bytes"}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, part...)
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		line := part
		if len(long) > 0 {
			line = append(long, part...)
			long = long[:0]
		}
		if n := len(line); n > 0 && line[n-1] == '\n' {
			line = line[:n-1]
		} else if n == 0 { // only at the end
			return nil
		}
		if terr := take(line); terr != nil || err != nil {
			return terr
		}
	}
}
