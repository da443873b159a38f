package main

import (
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/cmd/millrace/record"
)

// helpTopics is what several commands share, for help and the documents.
var helpTopics = []cli.Topic{
	{Name: "positions", Summary: "How to say where in a topic to begin and to end", Text: "" +
		"A position stands behind --from and --to. Each partition resolves it for itself; --to is where reading ends, not included.\n" +
		"start: the first message that is kept.\n" +
		"end: behind the last message.\n" +
		"45678: this offset. Where a partition does not have it, nothing is read and the ranges are named.\n" +
		"-100: so many messages before the end, or the start where there are fewer.\n" +
		"-15m: the first message that was appended so long ago or later; units ns us ms s m h d.\n" +
		"@2026-11-30T10:00Z: the first message that was appended then or later. Seconds, or the clock altogether, may be left out; " +
		"without a zone it is UTC. @1796000000000000000ns counts from 1970."},
	{Name: "format", Summary: "How consume -f prints a message", Text: "" +
		record.FormatHelp + ".\n" +
		"Nothing is added, so end a format in \\n: consume orders -f '%o %k %s\\n'. Without -f the value and a line end are printed. " +
		"On a terminal bytes that are no text are shown escaped or in hex."},
}
