package broker

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
)

// TestEverySentinelHasAWireCode reads the sentinels from the source, so that a new one cannot
// be forgotten.
func TestEverySentinelHasAWireCode(t *testing.T) {
	byName := map[string]error{
		"broker.ErrClosed": ErrClosed, "broker.ErrUnknownTopic": ErrUnknownTopic, "broker.ErrDeleted": ErrDeleted,
		"broker.ErrTopicExists": ErrTopicExists, "broker.ErrUnknownPartition": ErrUnknownPartition,
		"broker.ErrFewerPartitions": ErrFewerPartitions, "broker.ErrDamagedTopic": ErrDamagedTopic,
		"broker.ErrUnavailable": ErrUnavailable, "broker.ErrCommitBeyondEnd": ErrCommitBeyondEnd,
		"storage.ErrClosed": storage.ErrClosed, "storage.ErrFailed": storage.ErrFailed, "storage.ErrNoSpace": storage.ErrNoSpace,
		"storage.ErrRefused": storage.ErrRefused, "storage.ErrReadOnly": storage.ErrReadOnly, "storage.ErrNewer": storage.ErrNewer,
	}
	for pkg, path := range map[string]string{"broker": "errors.go", "storage": "../storage/errors.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !spec.Names[0].IsExported() {
				return true
			}
			name := pkg + "." + spec.Names[0].Name
			sentinel := byName[name]
			require.Error(t, sentinel, "%s is not in this test", name)
			e := CodeOf(&PlaceError{Topic: "t", Partition: 3, Err: fmt.Errorf("wrapped: %w", sentinel)})
			require.NotEqual(t, protocol.Internal, e.Code, name)
			require.Contains(t, e.Detail, "topic t, partition 3")
			return true
		})
	}
}

func TestErrorsWithRangesKeepThem(t *testing.T) {
	require.Nil(t, CodeOf(nil))
	e := CodeOf(fmt.Errorf("x: %w", &storage.CorruptError{Path: "p", Pos: 9, From: 3, To: 8, Err: errors.New("bits")}))
	require.Equal(t, [3]uint64{uint64(protocol.Corrupt), 3, 8}, [3]uint64{uint64(e.Code), e.From, e.To})
	e = CodeOf(&storage.RangeError{Offset: 99, Start: 5, End: 10})
	require.Equal(t, [4]uint64{uint64(protocol.OffsetOutOfRange), 99, 5, 10}, [4]uint64{uint64(e.Code), e.Actual, e.From, e.To})
	e = CodeOf(&storage.RangeError{Offset: 99, Start: 5, End: 10, Epoch: 2, Lost: true})
	require.Equal(t, [3]uint64{uint64(protocol.LostSuffix), 10, 2}, [3]uint64{uint64(e.Code), e.To, uint64(e.Epoch)})
	quota := &protocol.Error{Code: protocol.Quota, Limit: 3}
	require.Same(t, quota, CodeOf(fmt.Errorf("x: %w", quota)))
	require.Equal(t, protocol.Internal, CodeOf(errors.New("what?")).Code)
}

func TestErrorTextsForClientsSayThingsOnce(t *testing.T) {
	e := CodeOf(&PlaceError{Topic: "t", Partition: 3, Err: &storage.RangeError{Offset: 99, Start: 5, End: 10}})
	require.Equal(t, "OFFSET_OUT_OF_RANGE: topic t, partition 3: offset 99 is outside [5, 10)", e.Error())
	e = CodeOf(&PlaceError{Topic: "t", Partition: -1, Err: fmt.Errorf("open: %w", storage.ErrNoSpace)})
	require.Equal(t, "topic t: open: no space", e.Detail)
}
