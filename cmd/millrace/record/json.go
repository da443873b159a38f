package record

import (
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/millrace-mq/millrace/protocol"
)

// AppendJSON appends a record as one line:
//
//	{"topic":"t","partition":0,"offset":0,"timestamp":"…","key":…,"value":…,"headers":[{"name":"…","value":"…"}]}
//
// Bytes that are no UTF-8 stand in base64 under key_base64 and value_base64. A
// record without key has key null, a tombstone value null.
func AppendJSON(dst []byte, topic string, partition uint32, r *protocol.Record) []byte {
	dst = AppendJSONString(append(dst, `{"topic":`...), []byte(topic))
	dst = append(dst, `,"partition":`...)
	dst = strconv.AppendUint(dst, uint64(partition), 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendUint(dst, r.Offset, 10)
	dst = append(dst, `,"timestamp":"`...)
	dst = append(dst, RFC3339(r.Timestamp)...)
	dst = AppendContentJSON(append(dst, `",`...), r)
	return append(dst, "}\n"...)
}

// AppendContentJSON appends key, value and headers as fields of an object.
func AppendContentJSON(dst []byte, r *protocol.Record) []byte {
	dst = appendBytesJSON(dst, "key", r.Key)
	dst = appendBytesJSON(append(dst, ','), "value", r.Value)
	dst = append(dst, `,"headers":`...)
	return AppendHeadersJSON(dst, r.Headers)
}

// AppendHeadersJSON appends headers as a list of objects with name and value.
func AppendHeadersJSON(dst []byte, headers protocol.Headers) []byte {
	dst = append(dst, '[')
	first := true
	for name, value, rest, ok := headers.Next(); ok; name, value, rest, ok = rest.Next() {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendBytesJSON(append(dst, '{'), "name", name)
		dst = appendBytesJSON(append(dst, ','), "value", value)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// appendBytesJSON appends a field: text, base64 under another name, or null.
func appendBytesJSON(dst []byte, name string, b []byte) []byte {
	dst = append(append(dst, '"'), name...)
	switch {
	case b == nil:
		return append(dst, `":null`...)
	case utf8.Valid(b):
		return AppendJSONString(append(dst, `":`...), b)
	}
	dst = append(dst, `_base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// AppendJSONString appends UTF-8 as a JSON string. Other bytes become U+FFFD.
func AppendJSONString(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(s[i:])
		if c >= utf8.RuneSelf && (r != utf8.RuneError || size > 1) && r != '\u2028' && r != '\u2029' {
			i += size
			continue
		}
		dst = append(dst, s[from:i]...)
		switch {
		case c == '"', c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		default: // also U+2028 and U+2029, which end a line for some readers
			dst = append(dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		}
		i += size
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}

// TextOrBase64 returns bytes as text, or in base64 where they are no UTF-8.
func TextOrBase64(b []byte) (text, base string) {
	if utf8.Valid(b) {
		return string(b), ""
	}
	return "", base64.StdEncoding.EncodeToString(b)
}

// RFC3339 writes a time in ns since 1970; what an int64 cannot hold as a number.
func RFC3339(ns uint64) string {
	if ns > 1<<63-1 {
		return strconv.FormatUint(ns, 10)
	}
	return time.Unix(0, int64(ns)).UTC().Format(time.RFC3339Nano)
}
