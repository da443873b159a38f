// Package bench measures a broker and the machine under it.
//
// It holds the parts every measurement shares: a latency histogram with a known
// error, payloads that prove themselves, an exact account of what was lost,
// doubled, reordered or altered, receipts that say where a figure comes from,
// the limits of this machine measured in the same run, and the per-frame method
// as a yardstick for ratios. It reads Linux interfaces (/proc, statfs, sendfile)
// and runs on Linux only.
//
// What a figure of this package does not say: load generator and broker usually
// share the cores of one machine and speak over loopback, so rates are those of
// both ends together. CPU seconds of the broker's process are free of that and
// are the figure to compare.
package bench
