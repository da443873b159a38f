package main

import (
	"encoding/base64"
	"unicode/utf8"

	"github.com/millrace-mq/millrace/protocol"
)

// appendRecordJSON appends a record as one line:
//
//	{"topic":"t","partition":0,"offset":0,"timestamp":"…","key":…,"value":…,"headers":[{"name":"…","value":"…"}]}
//
// Bytes that are no UTF-8 stand in base64 under key_base64 and value_base64. A
// record without key has key null, a tombstone value null.
func appendRecordJSON(dst []byte, topic string, partition uint32, r *protocol.Record) []byte {
	dst = appendJSONString(append(dst, `{"topic":`...), []byte(topic))
	dst = append(dst, `,"partition":`...)
	dst = append(dst, itoa(uint64(partition))...)
	dst = append(dst, `,"offset":`...)
	dst = append(dst, itoa(r.Offset)...)
	dst = append(dst, `,"timestamp":"`...)
	dst = append(dst, rfc3339(r.Timestamp)...)
	dst = appendContentJSON(append(dst, `",`...), r)
	return append(dst, "}\n"...)
}

// appendContentJSON appends key, value and headers as fields of an object.
func appendContentJSON(dst []byte, r *protocol.Record) []byte {
	dst = appendBytesJSON(dst, "key", r.Key)
	dst = appendBytesJSON(append(dst, ','), "value", r.Value)
	dst = append(dst, `,"headers":`...)
	return appendHeadersJSON(dst, r.Headers)
}

func appendHeadersJSON(dst []byte, headers protocol.Headers) []byte {
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
		return appendJSONString(append(dst, `":`...), b)
	}
	dst = append(dst, `_base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// appendJSONString appends UTF-8 as a JSON string. Other bytes become U+FFFD.
func appendJSONString(dst, s []byte) []byte {
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

// textOrBase64 returns bytes as text, or in base64 where they are no UTF-8.
func textOrBase64(b []byte) (text, base string) {
	if utf8.Valid(b) {
		return string(b), ""
	}
	return "", base64.StdEncoding.EncodeToString(b)
}
