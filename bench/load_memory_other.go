//go:build !linux

package bench

import "errors"

func readResident(int) (int64, error) { return 0, errors.ErrUnsupported }
