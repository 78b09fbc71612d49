package config

// Config is the whole configuration with every default filled in. Sizes and durations may still be "auto"; Resolve
// turns those into figures for one machine.
type Config struct {
	Run       Run
	Bookie    Bookie
	Metadata  Metadata
	Storage   Storage
	Journal   Journal
	GC        GC
	Disk      Disk
	Limits    Limits
	TLS       TLS
	HTTP      HTTP
	Metrics   Metrics
	Log       Log
	Recovery  Recovery
	Placement Placement
	Offload   Offload
	Expert    Expert
}

// Run says which parts the process runs.
type Run struct {
	Roles []string
}

// Bookie is the identity and address of the bookie.
type Bookie struct {
	ID                string
	AdvertisedAddress string
	Listen            string
	Domain            string
}

// Metadata says where the metadata store is.
type Metadata struct {
	URI     string
	Timeout Duration
	Server  MetadataServer
}

// MetadataServer configures the embedded etcd member that the role metadata runs.
type MetadataServer struct {
	Dir     string
	Listen  string
	Peers   []string
	Cluster string
}

// Storage is where data lives and how much memory serves it.
type Storage struct {
	JournalDirs    []string
	LedgerDirs     []string
	IndexDirs      []string
	AllowExpansion bool
	Memory         Size
	CacheWrite     Size
	CacheRead      Size
	FlushInterval  Duration
}

// Journal configures the write-ahead log.
type Journal struct {
	Durability    string
	MaxGroupWait  Duration
	MaxGroupBytes Size
	SegmentSize   Size
	IO            string
}

// GC configures garbage collection and compaction.
type GC struct {
	Interval   Duration
	MinorBelow float64
	MinorEvery Duration
	MajorBelow float64
	MajorEvery Duration
	Rate       Size
}

// Disk configures the watch over free space and the checks of directories.
type Disk struct {
	FullAt       float64
	WarnAt       float64
	ResumeBelow  float64
	ReadOnlyWhen string
	AllowShared  bool
	AllowAnyFS   bool
}

// Limits bounds what clients may make the process hold.
type Limits struct {
	InFlight          Size
	SlowClientTimeout Duration
}

// TLS names the certificate files.
type TLS struct {
	Cert       string
	Key        string
	CA         string
	ClientAuth bool
	Roles      []string
}

// HTTP configures the admin server.
type HTTP struct {
	Listen         string
	AdminTokenFile string
}

// Metrics chooses what /metrics shows.
type Metrics struct {
	Profile string
}

// Log configures the log on standard error.
type Log struct {
	Level string
}

// Recovery configures auditing and re-replication.
type Recovery struct {
	Enabled         bool
	LostBookieDelay Duration
	Rate            Size
	AuditEvery      Duration
}

// Placement configures where copies go.
type Placement struct {
	MinRacks   int
	RackSource string
}

// Offload configures the tier and the role offload.
type Offload struct {
	Targets     string
	Dir         string
	Geometry    string
	AfterAge    Duration
	AfterBytes  Size
	Match       []string
	Ledgers     int
	Verify      string
	Release     bool
	DeletionLag Duration
	Compression string
	Encryption  string
	KeySource   string
	KeyID       string
	Rate        Size
	UploadRate  Size
	ScrubEvery  Duration
	Memory      Size
}

// Expert holds what only a measurement should change; it may change between minor versions.
type Expert struct {
	EntryLogSize   Size
	GroupsInFlight int
	MaxFrame       Size
}
