// Package protocol is the bytes of millrace: what travels over TCP and, for DATA frames,
// exactly what lies on disk. It knows no socket, no file and no goroutine.
//
// Every frame starts with the same 29-byte header and is exactly
// 29 + keySize + payloadSize bytes long:
//
//	 0        1                 9                 17        21            25           29
//	| magic  | timestamp u64   | offset u64      | keySize | payloadSize | recordCount |  key … | payload … |
//	|  u8    |                 |                 |  u32    |   u32       |   u32       |
//
// All integers are big-endian. The high nibble of magic is the class, the low nibble the
// version (1). What the 20 bytes between magic and keySize and the recordCount mean depends on
// the class; the table Classes says so once, and docs/protocol.md is generated from it.
//
// A DATA frame carries no connection state: a PRODUCE or DELIVER run header in front of a
// stretch of DATA frames carries the handle or the subscription. That is what lets a stored
// byte be a wire byte in both directions.
package protocol

//go:generate go test -count=1 -run ^TestProtocolDocumentIsCurrent$ . -update
