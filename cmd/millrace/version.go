package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/protocol"
)

// Set by the linker (make build); a build without it asks the build info.
var (
	version  string
	revision string
)

// buildFacts says what this program is made of.
type buildFacts struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision
	Modified bool   `json:"modified"`       // built from a changed checkout
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Protocol int    `json:"protocol"`
}

// readBuild returns the facts of the running program.
func readBuild() buildFacts {
	facts := buildFacts{Version: version, Revision: revision, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, Protocol: protocol.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			if facts.Revision == "" {
				facts.Revision = s.Value[:min(12, len(s.Value))]
			}
		case "vcs.time":
			facts.Time = s.Value
		case "vcs.modified":
			facts.Modified = s.Value == "true"
		}
	}
	if facts.Version == "" {
		facts.Version = info.Main.Version
	}
	if facts.Version == "" {
		facts.Version = "(devel)"
	}
	return facts
}

// String returns "0.1.0 (a1b2c3d 2026-11-30, go1.26.8 linux/amd64)".
func (b buildFacts) String() string {
	inside := b.Go + " " + b.Platform
	if b.Revision != "" {
		built := b.Revision
		if b.Modified {
			built += "+changes"
		}
		if len(b.Time) >= len("2006-01-02") {
			built += " " + b.Time[:len("2006-01-02")]
		}
		inside = built + ", " + inside
	}
	return fmt.Sprintf("%s (%s)", b.Version, inside)
}

var versionCommand = cli.Command{
	Name:    "version",
	Offline: true,
	Summary: "Print the version of this program",
	Setup: func(*flag.FlagSet) cli.RunFunc {
		return func(_ context.Context, c *cli.Call) error {
			facts := readBuild()
			return c.Object(facts, func(w io.Writer) { fmt.Fprintf(w, "millrace %s\n", facts) })
		}
	},
}
