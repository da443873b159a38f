// Package bench measures a broker and the machine under it.
//
// It holds the parts every measurement shares: a latency histogram with a known
// error, payloads that prove themselves, an exact account of what was lost,
// doubled, reordered or altered, receipts that say where a figure comes from,
// the limits of this machine measured in the same run, and the per-frame method
// as a yardstick for ratios. What a process used and what lies under a directory is
// read from Linux interfaces; elsewhere those answers are "unknown" or
// errors.ErrUnsupported.
//
// What a figure of this package does not say: load generator and broker usually
// share the cores of one machine and speak over loopback, so rates are those of
// both ends together. CPU seconds of the broker's process are free of that and
// are the figure to compare. In a virtual machine, writes into page cache memory the
// machine has not touched before cost several times more than later ones, so compare
// runs that follow a run of the same size.
package bench
