package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const envPrefix = "MILLRACE_"

// Variables that begin like a key's and are for the command line itself.
var otherEnv = []string{"MILLRACE_ADDR", "MILLRACE_CONFIG"}

// Sources is what Load reads. Everything in it is optional.
type Sources struct {
	File  string            // name of the file, for messages
	Text  []byte            // its contents
	Env   []string          // NAME=value, as os.Environ returns; others than MILLRACE_* are ignored
	Flags map[string]string // by flag name without dashes: a key's Name or Flag
}

// Load reads and checks a whole configuration: flags override the environment,
// that the file, and that the defaults. A value is checked even where another
// one overrides it.
//
// Errors: Problems, with every problem of all sources.
func Load(src Sources) (*Config, error) {
	var problems Problems
	c := defaults()
	// Weakest source first: each later one overwrites.
	for _, entries := range [][]entry{
		parseFile(src.File, src.Text, &problems),
		envEntries(src.Env, &problems),
		flagEntries(src.Flags, &problems),
	} {
		for _, e := range entries {
			c.apply(e, &problems)
		}
	}
	if len(problems) == 0 {
		c.checkTogether(&problems)
	}
	if len(problems) > 0 {
		problems.sort()
		return nil, problems
	}
	return c, nil
}

// Default returns the configuration that nobody changed.
func Default() *Config { return defaults() }

func defaults() *Config {
	c := &Config{origins: make(map[string]Origin, len(keys))}
	for i := range keys {
		if err := keys[i].assign(c, keys[i].Default); err != nil {
			panic("config: default of " + keys[i].Name + ": " + err.Error())
		}
		c.origins[keys[i].Name] = Origin{}
	}
	return c
}

func (c *Config) apply(e entry, problems *Problems) {
	k := lookup(e.key)
	if k == nil {
		problems.add(e.origin, e.key, "", "unknown key"+didYouMean(e.key, keyNames()))
		return
	}
	if err := k.assign(c, e.value); err != nil {
		problems.add(e.origin, e.key, e.value, err.Error())
		return
	}
	c.origins[k.Name] = e.origin
}

// envEntries returns the settings of the environment, sorted by name.
func envEntries(env []string, problems *Problems) []entry {
	byEnv := make(map[string]*Key, len(keys))
	for i := range keys {
		byEnv[keys[i].Env()] = &keys[i]
	}
	var entries []entry
	for _, line := range slices.Sorted(slices.Values(env)) {
		name, value, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(otherEnv, name) {
			continue
		}
		at := Origin{Source: SourceEnv, Name: name}
		k := byEnv[name]
		if k == nil {
			known := append(slices.Sorted(maps.Keys(byEnv)), otherEnv...)
			problems.add(at, "", "", "unknown variable"+didYouMean(name, known))
			continue
		}
		entries = append(entries, entry{k.Name, value, at})
	}
	return entries
}

// flagEntries returns the settings of the flags, sorted by name.
func flagEntries(flags map[string]string, problems *Problems) []entry {
	var entries []entry
	given := make(map[string]string, len(flags)) // key → flag
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		at := Origin{Source: SourceFlag, Name: name}
		i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name || k.Flag != "" && k.Flag == name })
		if i < 0 {
			problems.add(at, "", "", "unknown flag"+didYouMean(name, FlagNames()))
			continue
		}
		key := keys[i].Name
		if first := given[key]; first != "" {
			problems.add(at, key, flags[name], "given twice (also as --"+first+")")
			continue
		}
		given[key] = name
		entries = append(entries, entry{key, flags[name], at})
	}
	return entries
}

// FlagNames returns the names of all flags that set a key, without dashes.
func FlagNames() []string {
	names := keyNames()
	for i := range keys {
		if keys[i].Flag != "" && keys[i].Flag != keys[i].Name {
			names = append(names, keys[i].Flag)
		}
	}
	return names
}

func keyNames() []string {
	names := make([]string, len(keys))
	for i := range keys {
		names[i] = keys[i].Name
	}
	return names
}

func didYouMean(word string, names []string) string {
	if near := Nearest(word, names); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}

// checkTogether checks what no key alone can tell.
func (c *Config) checkTogether(problems *Problems) {
	if c.Limits.ConnInflightBytes > c.Limits.InflightBytes {
		problems.add(c.origins["limits.conn_inflight_bytes"], "limits.conn_inflight_bytes", c.Text("limits.conn_inflight_bytes"),
			"one connection may not hold more than all: limits.inflight_bytes is "+c.Text("limits.inflight_bytes")+
				" ("+c.origins["limits.inflight_bytes"].String()+")")
	}
	if from := c.origins["listen.http"]; from.Source != SourceDefault && c.Listen.Client == c.Listen.HTTP && !strings.HasSuffix(c.Listen.HTTP, ":0") {
		problems.add(from, "listen.http", c.Listen.HTTP, "the same address as listen.client")
	}
}
