// Package millrace is the root of the module. It holds no code: the broker
// lives in broker, the log in storage, the bytes in protocol, the client in
// client and the binary in cmd/millrace. The tests in this directory hold the
// tree to the house rules of docs/architecture.md.
package millrace
