package main

import "github.com/millrace-mq/millrace/cmd/millrace/cli"

// commands is the command table: it drives the parser, help, docs/cli.md and
// the tests. To add a verb, write cmd/millrace/<verb>.go with
//
//	var produceCommand = cli.Command{
//		Name:    "produce",                 // or two words: "topics create"
//		Args:    "TOPIC [MESSAGE | -]",     // usage of what is no flag
//		MinArgs: 1, MaxArgs: 2,             // MaxArgs -1 = any number
//		Summary: "Send messages to a topic",
//		Help:    "…",                       // paragraphs; may be empty
//		Setup: func(fs *flag.FlagSet) cli.RunFunc {
//			key := fs.String("key", "", "`KEY` of the message")
//			cli.Alias(fs, "k", "key")
//			return func(ctx context.Context, c *cli.Call) error { … *key … c.Args[0] … }
//		},
//	}
//
// and add one line here, in the order of help. Setup declares the flags as
// local variables and returns the function that runs the verb. Of the call c it
// finds there, c.Addr and c.Timeout come from the global flags; c.Rows and
// c.Object print in the form that -o asks for; c.StartProgress reports on
// stderr; withClient connects; cli.Usagef and cli.WithCode return errors that
// carry an exit code. What a verb does beyond asking a broker and printing
// belongs in a package beside cli, as the reading of files does in inspect.
var commands = []cli.Command{
	serverCommand,
	devCommand,
	produceCommand,
	consumeCommand,
	topicsLsCommand,
	topicsShowCommand,
	topicsCreateCommand,
	topicsSetCommand,
	topicsRmCommand,
	benchProduceCommand,
	benchConsumeCommand,
	benchE2ECommand,
	benchLatencyCommand,
	benchIdleCommand,
	benchRatioCommand,
	benchCeilingCommand,
	benchConsumerCommand,
	benchPerFrameCommand,
	healthCommand,
	verifyCommand,
	dumpCommand,
	configShowCommand,
	configExplainCommand,
	configInitCommand,
	versionCommand,
	cli.HelpWith(helpTopics...),
	docsCommand,
}
