package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/millrace-mq/millrace/cmd/millrace/cli"
)

// ports is the content of a port file.
type ports struct {
	Client string `json:"client"` // host:port
	HTTP   string `json:"http"`   // host:port; empty = no HTTP listener
	PID    int    `json:"pid"`
}

// checkPortFile tells early that a port file cannot be written, and removes that
// of an earlier run.
func checkPortFile(name string) error {
	if name == "" {
		return nil
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("port file: %s is a directory; name a file in it", name)
	case err == nil:
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("port file: %w", err)
		}
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("port file: %w", err)
	}
	if err := checkWritable(filepath.Dir(name)); err != nil {
		return fmt.Errorf("port file %s: its directory cannot be written: %w", name, err)
	}
	return nil
}

// writePortFile makes the file appear with all of its content at once. An empty
// name is no file.
func writePortFile(name, client string) error {
	if name == "" {
		return nil
	}
	line, err := cli.MarshalLine(ports{Client: client, PID: os.Getpid()})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(line)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
