package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Source is the kind of place that a value comes from, weakest first.
type Source uint8

// The sources in order of precedence: a later one overrides an earlier one.
const (
	SourceDefault Source = iota
	SourceFile
	SourceEnv
	SourceFlag
)

// Origin is where one value was written.
type Origin struct {
	Source Source
	Name   string // of the file, the variable or the flag
	Line   int    // in the file, from 1
}

// String returns default, file:line, env NAME or flag --name.
func (o Origin) String() string {
	switch o.Source {
	case SourceFile:
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	case SourceEnv:
		return "env " + o.Name
	case SourceFlag:
		return "flag --" + o.Name
	}
	return "default"
}

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Origin  Origin
	Key     string // as written; empty where a line has none
	Value   string // as written
	Message string
}

// Error returns the problem on one line.
func (p Problem) Error() string {
	return p.Origin.String() + ": " + p.subject() + p.Message
}

func (p Problem) subject() string {
	switch {
	case p.Key == "":
		return ""
	case p.Value == "":
		return p.Key + ": "
	}
	return fmt.Sprintf("%s = %q: ", p.Key, p.Value)
}

// Problems is every problem of a configuration, in the order of file lines,
// variables and flags. It holds at most 100.
type Problems []Problem

const maxProblems = 100

// Error returns one problem a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

// add keeps the first maxProblems problems.
func (p *Problems) add(o Origin, key, value, message string) {
	if len(*p) < maxProblems {
		*p = append(*p, Problem{Origin: o, Key: key, Value: shorten(value), Message: message})
	}
}

// sort puts problems in the order of their origins.
func (p Problems) sort() {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Origin.Source, b.Origin.Source),
			cmp.Compare(a.Origin.Line, b.Origin.Line), cmp.Compare(a.Origin.Name, b.Origin.Name))
	})
}

// shorten keeps a hostile value from filling the terminal.
func shorten(value string) string {
	const most = 80
	if len(value) <= most {
		return value
	}
	return strings.ToValidUTF8(value[:most], "") + "…"
}
