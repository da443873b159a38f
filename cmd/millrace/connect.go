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

// withClient runs work with a connection to the broker. Of an error that names
// the topic of the command it says what to do.
func withClient(ctx context.Context, c *cli.Call, work func(cl *client.Client) error, opts ...client.Option) error {
	cl, err := open(ctx, c, opts...)
	if err != nil {
		return err
	}
	err = work(cl)
	if len(c.Args) > 0 {
		err = advise(ctx, c, cl, c.Args[0], err)
	}
	return errors.Join(err, cl.Close())
}

// withLink is withClient for commands that outlive a broker: it tells when the
// connection is lost and when it is back.
func withLink(ctx context.Context, c *cli.Call, work func(cl *client.Client, l *link) error) error {
	l := &link{c: c}
	return withClient(ctx, c, func(cl *client.Client) error { return work(cl, l) }, client.WithHooks(l.hooks()))
}
