//go:build !linux

package bench

import "time"

func sharpenTimer() {}

func bluntTimer() {}

func nap(ns int64) { time.Sleep(time.Duration(ns)) }
