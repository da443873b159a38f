package main

// commands is the command table: it drives the parser, help, docs/cli.md and
// the tests. To add a verb, write cmd/millrace/<verb>.go with
//
//	var produceCommand = command{
//		name:    "produce",                 // or two words: "topics create"
//		args:    "TOPIC [MESSAGE | -]",     // usage of what is no flag
//		minArgs: 1, maxArgs: 2,             // maxArgs -1 = any number
//		summary: "Send messages to a topic",
//		help:    "…",                       // paragraphs; may be empty
//		setup: func(fs *flag.FlagSet) runFunc {
//			key := fs.String("key", "", "`KEY` of the message")
//			alias(fs, "k", "key")
//			return func(ctx context.Context, c *call) error { … *key … c.args[0] … }
//		},
//	}
//
// and add one line here, in the order of help. setup declares the flags as
// local variables and returns the function that runs the verb. Of the call c it
// finds there, c.addr and c.timeout come from the global flags; c.rows and
// c.object print in the form that -o asks for; c.startProgress reports on
// stderr; usagef and withCode return errors that carry an exit code.
var commands = []command{
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
	helpCommand,
	docsCommand,
}
