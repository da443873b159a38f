package cli

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace-mq/millrace/broker/config"
)

// quantity is a flag whose text a parser of package config reads.
type quantity[T int64 | time.Duration] struct {
	value  *T
	parse  func(string) (T, error)
	format func(T) string
}

// Set reads the flag's text.
func (q *quantity[T]) Set(text string) (err error) {
	*q.value, err = q.parse(text)
	return err
}

// String returns the value as the flag takes it.
func (q *quantity[T]) String() string {
	if q.value == nil { // package flag asks the zero value
		return ""
	}
	return q.format(*q.value)
}

// SizeVar registers a flag of bytes: 4096, 64KiB, 1GB.
func SizeVar(fs *flag.FlagSet, p *int64, name string, value int64, usage string) {
	*p = value
	fs.Var(&quantity[int64]{p, config.ParseSize, config.FormatSize}, name, usage)
}

// CountVar registers a flag of things: 1000, 1_000_000, 1M.
func CountVar(fs *flag.FlagSet, p *int64, name string, value int64, usage string) {
	*p = value
	fs.Var(&quantity[int64]{p, config.ParseCount, func(n int64) string { return fmt.Sprint(n) }}, name, usage)
}

// DurationVar registers a flag of time: 250ms, 30s, 7d, 0.
func DurationVar(fs *flag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	fs.Var(&quantity[time.Duration]{p, config.ParseDuration, config.FormatDuration}, name, usage)
}

// choice is a flag that takes one of some words.
type choice struct {
	value   string
	choices []string
}

// Set takes one of the choices.
func (c *choice) Set(text string) error {
	if !slices.Contains(c.choices, text) {
		return fmt.Errorf("not one of %s%s", strings.Join(c.choices, ", "), Suggestion(text, c.choices, ""))
	}
	c.value = text
	return nil
}

// String returns the word.
func (c *choice) String() string { return c.value }

// ChoiceVar registers a flag that takes one of some words; value is the first.
func ChoiceVar(fs *flag.FlagSet, name, value, usage string, others ...string) *string {
	c := &choice{value, append([]string{value}, others...)}
	fs.Var(c, name, usage)
	return &c.value
}
