package protocol

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestEveryCodeHasOneRowWithAUniqueName(t *testing.T) {
	names := map[string]bool{}
	for i, row := range Errors {
		require.Equal(t, Code(i), row.Code, "the rows are in order and leave no number out")
		require.False(t, names[row.Name], row.Name)
		names[row.Name] = true
		require.Equal(t, strings.ToUpper(row.Name), row.Name)
		require.NotEmpty(t, row.Text)
		require.Equal(t, row.Name, row.Code.Name())
		require.Equal(t, row.Retriable, row.Code.Retriable())
		require.True(t, strings.HasPrefix(row.Code.Error(), row.Name+": "))
	}
	require.Equal(t, constants(t, "Code"), len(Errors), "each Code constant has a row")
	require.Equal(t, "CODE_999", Code(999).Name())
	require.Equal(t, "CODE_999", Code(999).Error())
	require.False(t, Code(999).Retriable())
}

func TestACodeIsItsOwnSentinel(t *testing.T) {
	refused := fmt.Errorf("topic orders: %w", &Error{Code: UnknownTopic, Detail: "orders"})
	require.ErrorIs(t, refused, UnknownTopic)
	require.NotErrorIs(t, refused, UnknownPartition)
	require.NotErrorIs(t, refused, io.EOF)
	require.ErrorIs(t, fmt.Errorf("bare: %w", NoSpace), NoSpace)
	var e *Error
	require.ErrorAs(t, refused, &e)
	require.False(t, e.Retriable())
	require.True(t, (&Error{Code: Throttled}).Retriable())
}

func TestAsErrorFindsTheRefusalOrCallsItInternal(t *testing.T) {
	require.Nil(t, AsError(nil))
	e := &Error{Code: Denied, Detail: "no"}
	require.Same(t, e, AsError(fmt.Errorf("wrapped: %w", e)))
	require.Equal(t, &Error{Code: NoSpace, Detail: "append: " + NoSpace.Error()}, AsError(fmt.Errorf("append: %w", NoSpace)))
	require.Equal(t, &Error{Code: Internal, Detail: "boom"}, AsError(errors.New("boom")))
	require.Equal(t, Internal, AsError(OK).Code, "success that travels as an error is a defect, not success")
}

func TestErrorTextHasActualLimitSettingRangeAndHint(t *testing.T) {
	for _, c := range []struct {
		e    Error
		want string
	}{
		{Error{Code: Denied}, "DENIED: the client may not do this"},
		{Error{Code: TooLarge, Detail: "message", Actual: 9, Limit: 8, Setting: "max_message_bytes"}, "TOO_LARGE: message (9 > 8, max_message_bytes)"},
		{Error{Code: OffsetOutOfRange, Detail: "offset 9", From: 2, To: 7, Hint: "use end"}, "OFFSET_OUT_OF_RANGE: offset 9 [2, 7); use end"},
		{Error{Code: Corrupt, Detail: "t/0", From: 2, To: 7}, "CORRUPT: t/0 [2, 7)"},
		{Error{Code: LostSuffix, Detail: "t/0", To: 7, Epoch: 3}, "LOST_SUFFIX: t/0 end 7, epoch 3"},
		{Error{Code: 999, Detail: "x"}, "CODE_999: x"},
	} {
		require.Equal(t, c.want, c.e.Error())
	}
}

func TestLongErrorTextsAreCutAtACharacter(t *testing.T) {
	for pad := range 5 {
		for _, char := range []string{"a", "é", "€", "𝄞"} {
			long := strings.Repeat("x", pad) + strings.Repeat(char, 1100)
			e := Error{Code: BadName, Detail: long, Setting: long, Hint: long}
			var got Error
			require.NoError(t, got.Decode(BadName, e.AppendTo(nil)))
			for _, s := range []string{got.Detail, got.Setting, got.Hint} {
				require.True(t, utf8.ValidString(s), "cut through a character: %q", s[len(s)-4:])
				require.True(t, strings.HasPrefix(long, s))
				require.LessOrEqual(t, len(s), maxErrorText)
				require.Greater(t, len(s), maxErrorText-utf8.UTFMax)
			}
		}
	}
	binary := strings.Repeat("\x80", 2000)
	require.GreaterOrEqual(t, len(clip(binary)), maxErrorText-utf8.UTFMax, "bytes that are no text lose no more than a character's length")
	require.LessOrEqual(t, len(new(Error{Detail: binary, Setting: binary, Hint: binary}).AppendTo(nil)), MaxFrameUnauthenticated-HeaderSize,
		"the longest refusal fits the smallest frame limit")
}
