package main

import (
	"flag"
	"fmt"
	"strconv"

	"github.com/millrace-mq/millrace/protocol"
)

// partitionFlag is a partition that may be left open.
type partitionFlag struct {
	number uint32
	given  bool
}

// Set reads a number.
func (p *partitionFlag) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return fmt.Errorf("not a partition number")
	}
	if n >= protocol.MaxPartitions {
		return fmt.Errorf("out of range: 0 to %d", protocol.MaxPartitions-1)
	}
	p.number, p.given = uint32(n), true
	return nil
}

// String returns the number, or nothing.
func (p *partitionFlag) String() string {
	if p == nil || !p.given {
		return ""
	}
	return strconv.FormatUint(uint64(p.number), 10)
}

func partitionVar(fs *flag.FlagSet, p *partitionFlag, usage string) { fs.Var(p, "partition", usage) }
