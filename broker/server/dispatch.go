package server

import (
	"fmt"

	"github.com/millrace-mq/millrace/broker"
	"github.com/millrace-mq/millrace/protocol"
)

// request is one REQUEST frame while it is handled.
//
// Ownership: key and args view the read buffer and are valid until the handler returns.
type request struct {
	opcode      protocol.Opcode
	flags       uint16
	timeout     uint32 // ms
	correlation uint64
	handle      uint32
	key         []byte
	args        []byte

	after func() // run once the response is queued
}

// message is the payload of a response.
type message interface{ AppendTo([]byte) []byte }

// handler serves one opcode. A nil message is an empty payload.
type handler func(*conn, *request) (message, error)

// handlers is the table of what this server serves; a test compares it with protocol.Opcodes.
var handlers = map[protocol.Opcode]handler{
	protocol.OpHello:         doHello,
	protocol.OpOpen:          doOpen,
	protocol.OpClose:         doClose,
	protocol.OpTopicCreate:   doTopicCreate,
	protocol.OpTopicAlter:    doTopicAlter,
	protocol.OpTopicDelete:   doTopicDelete,
	protocol.OpTopicList:     doTopicList,
	protocol.OpTopicDescribe: doTopicDescribe,
	protocol.OpOffsets:       doOffsets,
	protocol.OpSubscribe:     doSubscribe,
	protocol.OpUnsubscribe:   doUnsubscribe,
	protocol.OpStats:         doStats,
}

// flagsOf are the bits that the flags of a REQUEST may have; an opcode that is not in it has none.
// A bit that this version does not know changes what is asked for, so it is not passed over.
var flagsOf = map[protocol.Opcode]uint16{protocol.OpTopicCreate: protocol.CreateIfMissing}

// request answers one REQUEST frame.
func (c *conn) request(h *protocol.Header, b []byte) error {
	key := protocol.HeaderSize + int(h.KeySize())
	r := request{opcode: h.Opcode(), flags: h.Flags(), timeout: h.TimeoutMillis(), correlation: h.Correlation(),
		handle: h.RequestHandle(), key: b[protocol.HeaderSize:key], args: b[key:]}
	c.server.counts.requests.Add(1)
	reply, err := c.dispatch(&r)
	if err == nil {
		err = c.respond(&r, reply)
	}
	if err != nil {
		c.server.counts.refusedRequests.Add(1)
		c.out.mu.Lock()
		c.out.putError(r.opcode, r.correlation, broker.CodeOf(err))
		c.out.mu.Unlock()
	}
	if r.after != nil && err == nil {
		r.after()
	}
	return c.relieve()
}

// dispatch finds the handler. What no row of the opcode table serves is refused.
func (c *conn) dispatch(r *request) (message, error) {
	spec := r.opcode.Spec()
	if spec == nil {
		return nil, &protocol.Error{Code: protocol.Unsupported, Detail: fmt.Sprintf("unknown opcode 0x%02x", uint16(r.opcode))}
	}
	if !c.greeted.Load() && spec.Right != protocol.RightNone {
		return nil, &protocol.Error{Code: protocol.Unauthenticated, Detail: spec.Name + " before HELLO"}
	}
	do := handlers[r.opcode]
	if spec.Since == 0 || spec.Since > protocol.Version || do == nil {
		return nil, &protocol.Error{Code: protocol.Unsupported, Detail: spec.Name + " is not served by this version"}
	}
	if unknown := r.flags &^ flagsOf[r.opcode]; unknown != 0 {
		return nil, unknownFlags(fmt.Sprintf("0x%04x", unknown), spec.Name)
	}
	return do(c, r)
}

// unknownFlags refuses bits that this version does not define.
func unknownFlags(bits, of string) error {
	return &protocol.Error{Code: protocol.Unsupported, Detail: fmt.Sprintf("undefined flags %s of %s", bits, of)}
}

// respond queues a successful response.
//
// Errors: protocol.TooLarge when the payload does not fit a control frame.
func (c *conn) respond(r *request, reply message) error {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	var h protocol.Header
	at := len(o.pending)
	o.pending = append(o.tail(), h[:]...)
	if reply != nil {
		o.pending = reply.AppendTo(o.pending)
	}
	size := len(o.pending) - at
	if size > protocol.MaxControlFrame {
		o.pending = o.pending[:at]
		return &protocol.Error{Code: protocol.TooLarge, Detail: "response of " + r.opcode.String(), Actual: uint64(size),
			Limit: protocol.MaxControlFrame, Setting: "control_frame"}
	}
	items := uint32(0)
	if n, ok := reply.(interface{ items() int }); ok {
		items = uint32(n.items())
	}
	protocol.HeaderOf(o.pending[at:]).PutResponse(r.opcode, protocol.OK, 0, r.correlation, items, size-protocol.HeaderSize)
	return nil
}

// empty refuses a payload where none is expected.
func (r *request) empty() error {
	if len(r.args) != 0 {
		return &protocol.Error{Code: protocol.BadRequest, Detail: fmt.Sprintf("%s takes no arguments, got %d bytes", r.opcode, len(r.args))}
	}
	return nil
}

// open returns the handle that the request names.
func (c *conn) open(r *request) (*handle, error) {
	if d := c.handles[r.handle]; d != nil {
		return d, nil
	}
	return nil, &protocol.Error{Code: protocol.UnknownHandle, Detail: fmt.Sprintf("handle %d", r.handle)}
}

// topicOf returns the topic that the request names in its key.
func (c *conn) topicOf(r *request) (*broker.Topic, error) {
	return c.server.broker.Topic(string(r.key))
}
