package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
)

var serverCommand = cli.Command{
	Name:    "server",
	Offline: true,
	Summary: "Run a broker",
	Help: "Runs until SIGTERM or SIGINT, then drains: no new connections and messages, what was accepted is appended, synced and answered, " +
		"and clients get up to drain.timeout to leave. A second signal cuts the clients off; what was accepted is synced even then.\n" +
		"The log goes to stderr. On a terminal a summary says where the data is, how safe an acknowledgement is, and what recovery found.\n" +
		"--port-file FILE is written once clients can connect: {\"client\":\"host:port\",\"http\":\"\",\"pid\":N}; http is empty: " +
		"there is no HTTP listener in this release. It is removed when the broker ends in order.\n" +
		"--check-config reads the whole configuration, prints every problem, and ends without opening anything: exit code 0 or 78.",
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		check := fs.Bool("check-config", false, "check the configuration and end")
		portFile := fs.String("port-file", "", "write the addresses as JSON to `FILE` once ready")
		load := configFlags(fs)
		return func(ctx context.Context, c *cli.Call) error {
			cfg, err := loadForServing(c, load)
			if err != nil {
				return err
			}
			if *check {
				return c.Object(map[string]bool{"ok": true}, func(w io.Writer) { fmt.Fprintln(w, "the configuration is valid") })
			}
			return serve(ctx, c, cfg, serveOptions{portFile: *portFile, banner: c.Terminal && !c.Quiet})
		}
	},
}

var devCommand = cli.Command{
	Name:    "dev",
	Offline: true,
	Summary: "Run a broker to try things out, with temporary data",
	Help: "Like server, but with a data directory that is made for this run and removed with everything in it at its end. " +
		"With --data DIR (or storage.data_dir) the data is kept there.",
	Setup: func(fs *flag.FlagSet) cli.RunFunc {
		data := fs.String("data", "", "keep the data in `DIR`")
		portFile := fs.String("port-file", "", "write the addresses as JSON to `FILE` once ready")
		load := configFlags(fs)
		return func(ctx context.Context, c *cli.Call) error {
			cfg, err := loadForServing(c, load)
			if err != nil {
				return err
			}
			return serveDev(ctx, c, cfg, *data, *portFile)
		}
	},
}

// serveDev serves from a directory that is given, configured or temporary.
func serveDev(ctx context.Context, c *cli.Call, cfg *config.Config, dir, portFile string) (err error) {
	o := serveOptions{portFile: portFile, banner: !c.Quiet, dev: true}
	switch {
	case dir != "":
		cfg.Storage.DataDir = dir
	case cfg.Origin("storage.data_dir").Source == config.SourceDefault:
		temporary, err := os.MkdirTemp("", "millrace-dev-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
		cfg.Storage.DataDir, o.temporary = temporary, true
	}
	return serve(ctx, c, cfg, o)
}

// loadForServing loads the configuration and checks what only the machine can
// tell: that the data directory can be written.
func loadForServing(c *cli.Call, load func(*cli.Call) (*config.Config, error)) (*config.Config, error) {
	cfg, err := load(c)
	if err != nil {
		return nil, err
	}
	var problems config.Problems
	add := func(key, message string) {
		problems = append(problems, config.Problem{Origin: cfg.Origin(key), Key: key, Value: cfg.Text(key), Message: message})
	}
	if err := checkDataDir(cfg.Storage.DataDir); err != nil {
		add("storage.data_dir", err.Error())
	}
	for _, s := range topicDefaults(cfg) {
		spec := s.ID.Spec()
		if err := spec.Check(s.Value); err != nil {
			add(configKey(spec.Name), fmt.Sprintf("out of the range of topics: %s to %s", settingText(spec, spec.Min), settingText(spec, spec.Max)))
		}
	}
	if len(problems) > 0 {
		return nil, cli.WithCode(cli.ExitConfig, problems)
	}
	return cfg, nil
}

// configKey is the configuration key of a topic setting's default.
func configKey(setting string) string {
	if setting == "durability" {
		return setting
	}
	return "topic." + setting
}

// checkDataDir tells why dir, or the first parent that exists, cannot take data.
func checkDataDir(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case err == nil && !info.IsDir():
			return fmt.Errorf("%s is not a directory", at)
		case err == nil:
			if err := checkWritable(at); err != nil {
				return fmt.Errorf("%s cannot be written: %w", at, err)
			}
			return nil
		case at == filepath.Dir(at) || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			return err
		}
	}
}
