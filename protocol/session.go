package protocol

// Version is the only protocol version so far.
const Version = 1

// Feature bits of HELLO.
const (
	FeatureProducer uint64 = 1 << iota // idempotent producers
	FeatureDelay                       // deliverAt
	FeatureExpire                      // expireAt
	FeatureLanes                       // priority lanes
	FeatureQueues                      // leases and settles
	FeatureGroups                      // stream groups
)

// Hello is the first request of a connection.
//
//	minVersion u8 | maxVersion u8 | maxFrame u32 | features u64 | client str | clientVersion str
type Hello struct {
	MinVersion    uint8
	MaxVersion    uint8
	MaxFrame      uint32 // largest DATA frame that the client takes, bytes; 0 = any
	Features      uint64 // what the client would use
	Client        string // name of the program, for logs
	ClientVersion string
}

// AppendTo appends the message to dst.
func (m *Hello) AppendTo(dst []byte) []byte {
	dst = append(dst, m.MinVersion, m.MaxVersion)
	dst = appendU32(dst, m.MaxFrame)
	dst = appendU64(dst, m.Features)
	dst = appendString(dst, m.Client)
	return appendString(dst, m.ClientVersion)
}

// Decode reads the message from src.
func (m *Hello) Decode(src []byte) error {
	c := cursor{b: src}
	*m = Hello{MinVersion: c.u8(), MaxVersion: c.u8(), MaxFrame: c.u32(), Features: c.u64(),
		Client: c.str(), ClientVersion: c.str()}
	return c.done("HELLO")
}

// HelloReply tells the client whom it talks to and within which limits.
//
//	version u8 | features u64 | maxFrame u32 | maxControl u32 | maxRun u32 | pingMillis u32 |
//	nodeID u64 | clock u64 | cluster str | server str | serverVersion str
type HelloReply struct {
	Version       uint8
	Features      uint64 // what the broker serves of what exists
	MaxFrame      uint32 // bytes
	MaxControl    uint32 // bytes
	MaxRun        uint32 // bytes
	PingMillis    uint32 // both sides ping when nothing else went out for so long
	NodeID        uint64
	Clock         uint64 // broker's time, ns since 1970
	Cluster       string // empty on a node that is alone
	Server        string
	ServerVersion string
}

// AppendTo appends the message to dst.
func (m *HelloReply) AppendTo(dst []byte) []byte {
	dst = append(dst, m.Version)
	dst = appendU64(dst, m.Features)
	dst = appendU32(dst, m.MaxFrame)
	dst = appendU32(dst, m.MaxControl)
	dst = appendU32(dst, m.MaxRun)
	dst = appendU32(dst, m.PingMillis)
	dst = appendU64(dst, m.NodeID)
	dst = appendU64(dst, m.Clock)
	dst = appendString(dst, m.Cluster)
	dst = appendString(dst, m.Server)
	return appendString(dst, m.ServerVersion)
}

// Decode reads the message from src.
func (m *HelloReply) Decode(src []byte) error {
	c := cursor{b: src}
	*m = HelloReply{Version: c.u8(), Features: c.u64(), MaxFrame: c.u32(), MaxControl: c.u32(), MaxRun: c.u32(),
		PingMillis: c.u32(), NodeID: c.u64(), Clock: c.u64(), Cluster: c.str(), Server: c.str(), ServerVersion: c.str()}
	return c.done("HELLO reply")
}

// Bits of Open.Flags.
const (
	OpenNoCreate uint8 = 1 << iota // a topic that does not exist is an error, whatever the policy
)

// Open asks for a handle on one partition of the topic in the request's key. Where policy
// allows, the topic is created.
//
//	partition u32 | flags u8
type Open struct {
	Partition uint32
	Flags     uint8
}

// AppendTo appends the message to dst.
func (m *Open) AppendTo(dst []byte) []byte { return append(appendU32(dst, m.Partition), m.Flags) }

// Decode reads the message from src.
func (m *Open) Decode(src []byte) error {
	c := cursor{b: src}
	*m = Open{Partition: c.u32(), Flags: c.u8()}
	return c.done("OPEN")
}

// OpenReply gives the handle and what a producer or consumer needs to know first.
//
//	handle u32 | partitions u32 | floor u8 | maxMessage u32 | epoch u32 | start u64 | end u64
type OpenReply struct {
	Handle     uint32 // never 0; valid on this connection until CLOSE
	Partitions uint32 // of the topic
	Floor      Level  // least level that the topic grants
	MaxMessage uint32 // bytes
	Epoch      uint32 // of the partition: rises when a suffix was lost
	Start      uint64 // first offset that is kept
	End        uint64 // behind the last visible offset
}

// AppendTo appends the message to dst.
func (m *OpenReply) AppendTo(dst []byte) []byte {
	dst = appendU32(dst, m.Handle)
	dst = appendU32(dst, m.Partitions)
	dst = append(dst, uint8(m.Floor))
	dst = appendU32(dst, m.MaxMessage)
	dst = appendU32(dst, m.Epoch)
	dst = appendU64(dst, m.Start)
	return appendU64(dst, m.End)
}

// Decode reads the message from src.
func (m *OpenReply) Decode(src []byte) error {
	c := cursor{b: src}
	*m = OpenReply{Handle: c.u32(), Partitions: c.u32(), Floor: Level(c.u8()), MaxMessage: c.u32(), Epoch: c.u32(),
		Start: c.u64(), End: c.u64()}
	return c.done("OPEN reply")
}

// Stat is one named number of the broker.
type Stat struct {
	Name  string
	Value uint64
}

// Stats is the broker's numbers: pid, CPU time, memory, counters of work.
//
//	count u32 | count × ( name str | value u64 )
type Stats struct{ Items []Stat }

// AppendTo appends the message to dst.
func (m *Stats) AppendTo(dst []byte) []byte {
	dst = appendU32(dst, uint32(len(m.Items)))
	for i := range m.Items {
		dst = appendU64(appendString(dst, m.Items[i].Name), m.Items[i].Value)
	}
	return dst
}

// Decode reads the message from src.
func (m *Stats) Decode(src []byte) error {
	c := cursor{b: src}
	m.Items = nil
	for range c.count(MaxListItems, 10) {
		m.Items = append(m.Items, Stat{c.str(), c.u64()})
	}
	return c.done("STATS reply")
}

// Get returns the number of that name, 0 when there is none.
func (m *Stats) Get(name string) uint64 {
	for i := range m.Items {
		if m.Items[i].Name == name {
			return m.Items[i].Value
		}
	}
	return 0
}
