package main

import (
	"context"
	"errors"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
)

// open connects to the broker within --timeout, which bounds each request as well.
func open(ctx context.Context, c *cli.Call, opts ...client.Option) (*client.Client, error) {
	ctx, cancel := c.Deadline(ctx)
	defer cancel()
	opts = append([]client.Option{client.Name("millrace"), client.RequestTimeout(c.Patience())}, opts...)
	return client.Open(ctx, c.Addr, opts...)
}

// withClient runs work with a connection to the broker.
func withClient(ctx context.Context, c *cli.Call, work func(cl *client.Client) error) error {
	cl, err := open(ctx, c)
	if err != nil {
		return err
	}
	return errors.Join(work(cl), cl.Close())
}
