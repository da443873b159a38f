package config

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/millrace-mq/millrace/protocol"
)

// TopicPatterns is a set of topic names: all, none, or those that match a
// pattern. The zero value matches none.
type TopicPatterns struct {
	text     string
	all      bool
	patterns []string
}

// Match reports whether the set holds topic.
func (p TopicPatterns) Match(topic string) bool {
	if p.all {
		return true
	}
	return slices.ContainsFunc(p.patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, topic)
		return ok && err == nil
	})
}

// String returns the set as configuration writes it.
func (p TopicPatterns) String() string {
	if p.text == "" {
		return "off"
	}
	return p.text
}

// ParseTopicPatterns reads on, off, or patterns with commas between them. A
// pattern is that of path.Match; one without a wildcard is the name of a topic.
//
// Errors: an empty pattern, one that is malformed, more than 100; a name that no
// topic can have; a word for yes or no, which somebody wrote who meant on or off.
func ParseTopicPatterns(text string) (TopicPatterns, error) {
	switch text {
	case "on":
		return TopicPatterns{text: text, all: true}, nil
	case "off":
		return TopicPatterns{text: text}, nil
	}
	const most = 100
	patterns := strings.Split(text, ",")
	if len(patterns) > most {
		return TopicPatterns{}, fmt.Errorf("%d patterns, at most %d", len(patterns), most)
	}
	for i, pattern := range patterns {
		pattern = strings.TrimSpace(pattern)
		patterns[i] = pattern
		if pattern == "" {
			return TopicPatterns{}, errors.New("a pattern between commas is empty")
		}
		if err := checkPattern(pattern, len(patterns)); err != nil {
			return TopicPatterns{}, err
		}
	}
	return TopicPatterns{text: strings.Join(patterns, ","), patterns: patterns}, nil
}

// switchWords are words that people write for on and off, and for neither.
var switchWords = map[string]string{
	"on": "on", "true": "on", "yes": "on", "y": "on", "t": "on", "1": "on", "enable": "on", "enabled": "on", "all": "on", "always": "on",
	"off": "off", "false": "off", "no": "off", "n": "off", "f": "off", "0": "off", "disable": "off", "disabled": "off", "none": "off", "never": "off",
	"maybe": "on or off", "auto": "on or off", "default": "on or off",
}

// checkPattern checks one of n patterns.
func checkPattern(pattern string, n int) error {
	lower := strings.ToLower(pattern)
	if meant, ok := switchWords[lower]; ok {
		if n > 1 && (lower == "on" || lower == "off") {
			return fmt.Errorf("%s stands alone: give it, or a list of patterns", lower)
		}
		return fmt.Errorf("%q is neither on nor off nor a pattern; did you mean %s? (a topic of that name is written [%s]%s)", pattern, meant, pattern[:1], pattern[1:])
	}
	if _, err := path.Match(pattern, "x"); err != nil {
		return fmt.Errorf("pattern %q is malformed (* any, ? one, [a-z] a range)", pattern)
	}
	if !strings.ContainsAny(pattern, `*?[\\`) && protocol.ValidClientTopic(pattern) != nil {
		return fmt.Errorf("%q is neither on nor off nor the name of a topic (A-Z a-z 0-9 . _ -, no underscore in front) nor a pattern of names", pattern)
	}
	return nil
}

// assign reads text as the key's kind, checks it and stores it in c.
func (k *Key) assign(c *Config, text string) error {
	if text == "" {
		return errors.New("has no value; leave it out for the default " + k.Default)
	}
	var err error
	switch field := k.field(c).(type) {
	case *string:
		*field, err = k.parseString(text)
	case *int:
		var n int64
		if n, err = ParseCount(text); err == nil {
			err = k.inRange(n, func(n int64) string { return strconv.FormatInt(n, 10) }, " "+k.Unit)
		}
		*field = int(n)
	case *int64:
		if *field, err = ParseSize(text); err == nil {
			err = k.inRange(*field, FormatSize, "")
		}
	case *time.Duration:
		if *field, err = ParseDuration(text); err == nil {
			err = k.inRange(int64(*field), formatNanoseconds, "")
		}
	case *protocol.Level:
		*field, err = parseLevel(text)
	case *TopicPatterns:
		*field, err = ParseTopicPatterns(text)
	default:
		panic("config: key " + k.Name + " has a field of unknown type")
	}
	return err
}

func (k *Key) inRange(n int64, show func(int64) string, unit string) error {
	if n == 0 && k.Zero != "" {
		return nil
	}
	if n < k.Min || n > k.Max {
		zero := ""
		if k.Zero != "" {
			zero = ", or 0 (" + k.Zero + ")"
		}
		return fmt.Errorf("%s is out of range: %s to %s%s%s", show(n), show(k.Min), show(k.Max), unit, zero)
	}
	return nil
}

func (k *Key) parseString(text string) (string, error) {
	switch k.Kind {
	case KindChoice:
		return text, oneOf(text, k.Choices)
	case KindAddress:
		if slices.Contains(k.Choices, text) {
			return text, nil
		}
		return text, checkAddress(text)
	}
	if i := strings.IndexFunc(text, unicode.IsControl); i >= 0 {
		return "", fmt.Errorf("has a control character at byte %d", i)
	}
	return text, nil
}

func oneOf(text string, choices []string) error {
	if slices.Contains(choices, text) {
		return nil
	}
	if near := Nearest(text, choices); near != "" {
		return fmt.Errorf("not one of %s; did you mean %s?", strings.Join(choices, ", "), near)
	}
	return fmt.Errorf("not one of %s", strings.Join(choices, ", "))
}

// The levels that a topic's floor can be.
var levels = [...]protocol.Level{protocol.LevelNone, protocol.LevelWritten, protocol.LevelDurable, protocol.LevelQuorum}

func levelNames() []string {
	var names []string
	for _, l := range levels {
		names = append(names, l.String())
	}
	return names
}

func parseLevel(text string) (protocol.Level, error) {
	for _, l := range levels {
		if l.String() == text {
			return l, nil
		}
	}
	return 0, oneOf(text, levelNames())
}

// checkAddress accepts host:port, :port and [v6]:port, with a numeric port.
func checkAddress(text string) error {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return fmt.Errorf("not an address (no port; try %q)", text+":7654")
	}
	host, port := text[:i], text[i+1:]
	n, err := strconv.ParseUint(port, 10, 64)
	if err != nil {
		return fmt.Errorf("not an address (port %q is not a number)", port)
	}
	if n > 65535 {
		return fmt.Errorf("port %d is out of range: 0 to 65535", n)
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		if addr, err := netip.ParseAddr(inner); err != nil || !closed || !addr.Is6() {
			return fmt.Errorf("not an address (%q is not an IPv6 address in brackets)", host)
		}
		return nil
	}
	if strings.Contains(host, ":") {
		return fmt.Errorf("not an address (write IPv6 in brackets: %q)", "["+host+"]:"+port)
	}
	bad := func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(".-_%", r)
	}
	if i := strings.IndexFunc(host, bad); i >= 0 {
		return fmt.Errorf("not an address (host %q has a character that no host name has)", host)
	}
	return nil
}

// format writes the value behind a field pointer as assign reads it.
func format(field any) string {
	switch f := field.(type) {
	case *string:
		return *f
	case *int:
		return strconv.Itoa(*f)
	case *int64:
		return FormatSize(*f)
	case *time.Duration:
		return FormatDuration(*f)
	case *protocol.Level:
		return f.String()
	case *TopicPatterns:
		return f.String()
	}
	panic("config: a field has an unknown type")
}
