package main

import (
	"context"
	"errors"
	"time"

	"github.com/millrace-mq/millrace/client"
)

// forever stands for a bound that --timeout 0 takes away.
const forever = 100 * 365 * 24 * time.Hour

// patience is --timeout where 0 is not allowed.
func (c *call) patience() time.Duration {
	if c.timeout == 0 {
		return forever
	}
	return c.timeout
}

// open connects to the broker within --timeout, which bounds each request as well.
func (c *call) open(ctx context.Context, opts ...client.Option) (*client.Client, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	opts = append([]client.Option{client.Name("millrace"), client.RequestTimeout(c.patience())}, opts...)
	return client.Open(ctx, c.addr, opts...)
}

// withClient runs work with a connection to the broker.
func (c *call) withClient(ctx context.Context, work func(cl *client.Client) error) error {
	cl, err := c.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(work(cl), cl.Close())
}
