package bench

import "errors"

var (
	// ErrOutOfRange reports an argument outside its documented bounds. The
	// wrapping error names the argument, its value and the limit.
	ErrOutOfRange = errors.New("bench: argument out of range")

	// ErrBadHistogram reports an encoded histogram whose counters contradict
	// each other or do not fit this package's counters.
	ErrBadHistogram = errors.New("bench: malformed histogram")

	// ErrBadReceipt reports a line of a receipts file that is no receipt. The
	// wrapping error carries the path and the line number.
	ErrBadReceipt = errors.New("bench: malformed receipt")

	// ErrNoProcess reports that the process asked about does not exist or has
	// already ended.
	ErrNoProcess = errors.New("bench: no such process")

	// ErrBadProc reports a /proc file that does not have its documented form.
	ErrBadProc = errors.New("bench: malformed /proc file")

	// ErrBadFrame reports a frame that breaks the per-frame yardstick's format
	// or its bounds.
	ErrBadFrame = errors.New("bench: malformed frame")

	// ErrRefused reports that the per-frame broker refused a frame.
	ErrRefused = errors.New("bench: frame refused")
)
