package main

import (
	"errors"
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
