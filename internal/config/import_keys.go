package config

import "strings"

// Classes of an imported key: what became of it.
const (
	ImportMapped    = "mapped"    // one of our settings says the same
	ImportAutomatic = "automatic" // ours works it out, always does it, or has a command for it
	ImportObsolete  = "obsolete"  // about the JVM, Netty, RocksDB or an engine that is not ours
	ImportRefused   = "refused"   // asks for something that ours does not do
	ImportUnknown   = "unknown"   // no key of BookKeeper
)

// importRule says what becomes of one key.
type importRule struct {
	class string
	note  string
	to    string // for a plain mapping: our key
	unit  string // of the value: ms, s, MB, bytes, ratio, bool, text, paths, int
	// refuse returns why a value can not be imported, "" if it can. It comes before everything else.
	refuse func(value string) string
}

func refuseIf(bad func(string) bool, why string) func(string) string {
	return func(v string) string {
		if bad(v) {
			return why
		}
		return ""
	}
}

func isTrue(v string) bool {
	return strings.EqualFold(v, "true") || strings.EqualFold(v, "yes") || strings.EqualFold(v, "on")
}
func isFalse(v string) bool {
	return strings.EqualFold(v, "false") || strings.EqualFold(v, "no") || strings.EqualFold(v, "off")
}
func isSet(v string) bool {
	return v != "" && !strings.EqualFold(v, "null") && !strings.EqualFold(v, "none")
}

// otherThan says whether the last part of a class name is none of the given ones.
func otherThan(names ...string) func(string) bool {
	return func(v string) bool {
		if !isSet(v) {
			return false
		}
		for _, n := range names {
			if v[strings.LastIndexByte(v, '.')+1:] == n {
				return false
			}
		}
		return true
	}
}

const (
	noteJVM      = "of the JVM or Netty"
	noteRocksDB  = "of RocksDB; the index is bbolt and needs no tuning"
	noteEngine   = "of a storage engine that is not ours"
	noteAlways   = "always done"
	noteLimits   = "bounded by bytes instead: limits.in_flight"
	noteWorkers  = "no fixed pools of threads"
	noteAudit    = "worked out by auditing and re-replication"
	noteTLS      = "counts only with tlsProviderFactoryClass"
	noteStats    = "metrics are always in Prometheus's format"
	noteReserve  = "a reserve is set aside instead"
	noteJournal  = "the journal is another one; see its own settings"
	noteTogether = "see the keys that it goes with"
)

var importRules = buildImportRules()

func buildImportRules() map[string]importRule {
	m := map[string]importRule{}
	all := func(class, note string, keys string) {
		for _, k := range strings.Fields(keys) {
			m[k] = importRule{class: class, note: note}
		}
	}
	plain := func(key, to, unit string) { m[key] = importRule{class: ImportMapped, to: to, unit: unit} }
	refused := func(key string, bad func(string) bool, why, class, note string) {
		m[key] = importRule{class: class, note: note, refuse: refuseIf(bad, why)}
	}

	// Keys that stand alone.
	plain("bookieId", "bookie.id", "text")
	plain("ledgerDirectories", "storage.ledger_dirs", "paths")
	plain("indexDirectories", "storage.index_dirs", "paths")
	plain("allowStorageExpansion", "storage.allow_expansion", "bool")
	plain("allowMultipleDirsUnderSameDiskPartition", "disk.allow_shared", "bool")
	plain("flushInterval", "storage.flush_interval", "ms")
	plain("dbStorage_writeCacheMaxSizeMb", "storage.cache.write", "MB")
	plain("dbStorage_readAheadCacheMaxSizeMb", "storage.cache.read", "MB")
	plain("journalMaxSizeMB", "journal.segment_size", "MB")
	plain("journalBufferedWritesThreshold", "journal.max_group_bytes", "bytes")
	plain("gcWaitTime", "gc.interval", "ms")
	plain("diskUsageThreshold", "disk.full_at", "ratio")
	plain("diskUsageWarnThreshold", "disk.warn_at", "ratio")
	plain("diskUsageLwmThreshold", "disk.resume_below", "ratio")
	plain("nettyMaxFrameSizeBytes", "expert.max_frame", "bytes")
	plain("logSizeLimit", "expert.entry_log_size", "bytes")
	plain("zkTimeout", "metadata.timeout", "ms")
	plain("autoRecoveryDaemonEnabled", "recovery.enabled", "bool")
	plain("lostBookieRecoveryDelay", "recovery.lost_bookie_delay", "s")
	plain("auditorPeriodicCheckInterval", "recovery.audit_every", "s")
	plain("minNumRacksPerWriteQuorum", "placement.min_racks", "int")

	// Keys that go together; see importer.together.
	all(ImportMapped, noteTogether, `bookiePort listeningInterface advertisedAddress useHostNameAsBookieID useShortHostName
		journalDirectories journalDirectory journalSyncData journalWriteData journalMaxGroupWaitMSec journalAdaptiveGroupWrites
		minorCompactionThreshold minorCompactionInterval majorCompactionThreshold majorCompactionInterval
		isThrottleByBytes compactionRateByBytes readOnlyModeOnAnyDiskFullEnabled waitTimeoutOnResponseBackpressureMs
		metadataServiceUri zkServers zkLedgersRootPath replicationRateByBytes
		httpServerEnabled httpServerHost httpServerPort prometheusStatsHttpEnable prometheusStatsHttpAddress prometheusStatsHttpPort
		reppDnsResolverClass networkTopologyScriptFileName`)

	// What ours does not do.
	refused("extraServerComponents", isSet, "components for the JVM can not be loaded", ImportObsolete, noteJVM)
	refused("skipReplayJournalInvalidRecord", isTrue, "damage in a journal is never skipped: the ledgers that it may touch are put into limbo", ImportAutomatic, noteAlways)
	refused("entryLogPerLedgerEnabled", isTrue, "one entry log per ledger is not supported", ImportObsolete, noteEngine)
	refused("zkEnableSecurity", isTrue, "ZooKeeper's ACLs are not in this version", ImportObsolete, noteJVM)
	refused("tlsProviderFactoryClass", isSet, laterTLS, ImportObsolete, "TLS is off")
	refused("bookieAuthProviderFactoryClass", isSet, "authentication of clients is not in this version", ImportObsolete, "no authentication is configured")
	refused("httpServerTlsEnable", isTrue, "TLS for the admin server is not in this version", ImportObsolete, "TLS is off")
	refused("ensemblePlacementPolicy", otherThan("RackawareEnsemblePlacementPolicy", "RegionAwareEnsemblePlacementPolicy"),
		"only placement by racks and regions is supported", ImportAutomatic, "by racks and regions")
	refused("forceReadOnlyBookie", isTrue, "not a setting: start with `bindery run --read-only`, or order it with `bindery node readonly on`", ImportAutomatic, "writable, unless `bindery node readonly` says otherwise")
	refused("dataIntegrityChecking", isTrue, "a bookie that has lost data puts its ledgers into limbo by itself; lost directories need `bindery node init --accept-loss`", ImportAutomatic, noteAlways)
	refused("readOnlyModeEnabled", isFalse, "a bookie on a full disk never shuts down; it is read-only", ImportAutomatic, noteAlways)
	refused("disableServerSocketBind", isTrue, "a bookie without a port is of no use here", ImportObsolete, noteJVM)
	refused("ledgerManagerType", func(v string) bool { return isSet(v) && !strings.Contains(v, "hierarchical") }, "only hierarchical and longhierarchical are supported", ImportAutomatic, "read from the store")
	refused("ledgerManagerFactoryClass", func(v string) bool { return isSet(v) && !strings.Contains(v, "Hierarchical") }, "only the hierarchical and long hierarchical managers are supported", ImportAutomatic, "read from the store")

	all(ImportAutomatic, "the address is never a loopback one outside of `bindery standalone`", "allowLoopback allowEphemeralPorts")
	all(ImportAutomatic, "set for every connection", "serverTcpNoDelay serverSockKeepalive serverTcpKeepIdle serverTcpKeepIntvl serverTcpKeepCnt serverTcpLinger")
	all(ImportAutomatic, noteLimits, `maxAddsInProgressLimit maxReadsInProgressLimit maxPendingReadRequestsPerThread maxPendingAddRequestsPerThread
		closeChannelOnResponseTimeout serverWriteBufferLowWaterMark serverWriteBufferHighWaterMark journalQueueSize journalMaxMemorySizeMb
		dbStorage_maxThrottleTimeMs readWorkerThreadsThrottlingEnabled maxBatchReadSize`)
	all(ImportAutomatic, noteWorkers, "numAddWorkerThreads numReadWorkerThreads numHighPriorityWorkerThreads numLongPollWorkerThreads numJournalCallbackThreads")
	all(ImportAutomatic, noteJournal, `journalBufferedEntriesThreshold journalFlushWhenQueueEmpty journalMaxBackups journalPreAllocSizeMB journalWriteBufferSizeKB
		journalRemoveFromPageCache journalAlignmentSize journalFormatVersionToWrite journalPageCacheFlushIntervalMSec journalReuseFiles journalChannelProvider`)
	all(ImportAutomatic, "the engine is our own; it never opens BookKeeper's data in place", "ledgerStorageClass")
	all(ImportAutomatic, "by bytes, and adaptive", "dbStorage_readAheadCacheBatchSize dbStorage_readAheadCacheBatchBytesSize rereplicationEntryBatchSize")
	all(ImportAutomatic, "probed: journal.io", `dbStorage_directIOEntryLogger dbStorage_directIOEntryLoggerTotalWriteBufferSizeMB dbStorage_directIOEntryLoggerTotalReadBufferSizeMB
		dbStorage_directIOEntryLoggerReadBufferSizeMB dbStorage_directIOEntryLoggerMaxFdCacheTimeSeconds`)
	all(ImportAutomatic, noteAlways, `entryLogFilePreallocationEnabled verifyMetadataOnGC useTransactionalCompaction forceAllowCompaction isForceGCAllowWhenNoSpace
		persistBookieStatusEnabled sanityCheckMetricsEnabled enableStatistics dataIntegrityStampMissingCookies flushEntrylogBytes`)
	all(ImportAutomatic, "checked all the time: `bindery entrylog verify`, `bindery index verify`", "localConsistencyCheckOnStartup localScrubInterval localScrubRateLimit")
	all(ImportAutomatic, "limits of collection are constants", `gcOverreplicatedLedgerWaitTime gcOverreplicatedLedgerMaxConcurrentRequests gcMetadataOpRateLimit
		minorCompactionMaxTimeMillis majorCompactionMaxTimeMillis compactionMaxOutstandingRequests`)
	all(ImportAutomatic, "compaction is limited by bytes: gc.rate", "compactionRate compactionRateByEntries")
	all(ImportAutomatic, "every few seconds", "diskCheckInterval")
	all(ImportAutomatic, noteReserve, "minUsableSizeForIndexFileCreation minUsableSizeForEntryLogCreation minUsableSizeForHighPriorityWrites")
	all(ImportAutomatic, "retries are worked out from metadata.timeout", `zkRetryBackoffStartMs zkRetryBackoffMaxMs zkRetryBackoffMaxRetries zkRequestRateLimit zkReplicationTaskRateLimit`)
	all(ImportAutomatic, "files of certificates are always watched", "tlsCertFilesRefreshDurationSeconds")
	all(ImportAutomatic, noteAudit, `auditorPeriodicBookieCheckInterval auditorPeriodicPlacementPolicyCheckInterval auditorReplicasCheckInterval auditorLedgerVerificationPercentage
		auditorMaxNumberOfConcurrentOpenLedgerOperations auditorAcquireConcurrentOpenLedgerOperationsTimeOutMSec openLedgerRereplicationGracePeriod
		lockReleaseOfFailedLedgerGracePeriod rwRereplicateBackoffMs underreplicatedLedgerRecoveryGracePeriod repairedPlacementPolicyNotAdheringBookieEnabled
		inFlightReadEntryNumInLedgerChecker storeSystemTimeAsLedgerUnderreplicatedMarkTime storeSystemTimeAsLedgerCreationTime`)
	all(ImportAutomatic, "read from each ledger's record", "digestType passwd enableDigestTypeAutodetection useV2WireProtocol ledgerMetadataVersion")
	all(ImportAutomatic, "worked out by the client", "stickyReadSEnabled reorderReadSequenceEnabled enforceMinNumRacksPerWriteQuorum enforceMinNumFaultDomainsForWrite bookieAddressResolverEnabled enableHealthCheck ignoreLocalNodeInPlacementPolicy desiredNumZonesPerWriteQuorum minNumZonesPerWriteQuorum enforceStrictZoneawarePlacement networkTopologyScriptNumberArgs")

	all(ImportObsolete, noteJVM, `serverNumIOThreads serverNumAcceptorThreads enableBusyWait bookieDeathWatchInterval ignoreExtraServerComponentsStartupFailures
		byteBufAllocatorSizeInitial byteBufAllocatorSizeMin byteBufAllocatorSizeMax requestTimerTickDurationMs requestTimerNumTicks enableLocalTransport
		allocatorPoolingPolicy allocatorPoolingConcurrency allocatorOutOfMemoryPolicy allocatorLeakDetectionPolicy allocatorExitOnOutOfMemory
		allowShadedLedgerManagerFactoryClass shadedLedgerManagerFactoryClassPrefix ledgerManagerFactoryDisableClassCheck registrationManagerClass
		ledgerIdFormatterClass entryFormatterClass httpServerClass permittedStartupUsers preserveMdcForTaskExecution enableTaskExecutionStats
		exposeDefaultJVMMetrics limitStatsLogging metastoreImplClass metastoreMaxEntriesPerScan`)
	all(ImportObsolete, noteRocksDB, `dbStorage_rocksDB_blockCacheSize dbStorage_rocksDB_writeBufferSizeMB dbStorage_rocksDB_sstSizeInMB dbStorage_rocksDB_blockSize
		dbStorage_rocksDB_bloomFilterBitsPerKey dbStorage_rocksDB_numLevels dbStorage_rocksDB_numFilesInLevel0 dbStorage_rocksDB_maxSizeInLevel1MB
		dbStorage_rocksDB_format_version dbStorage_rocksDB_checksum_type dbStorage_rocksDB_logPath entryLocationRocksdbConf ledgerMetadataRocksdbConf defaultRocksdbConf
		entryLocationCompactionInterval gcEntryLogMetadataCacheEnabled gcEntryLogMetadataCachePath useTargetEntryLogSizeForGc`)
	all(ImportObsolete, noteEngine, `sortedLedgerStorageEnabled skipListSizeLimit skipListArenaChunkSize skipListArenaMaxAllocSize openFileLimit pageSize pageLimit
		fileInfoCacheInitialCapacity fileInfoMaxIdleTime fileInfoFormatVersionToWrite writeBufferSizeBytes readBufferSizeBytes numOfMemtableFlushThreads
		entrylogMapAccessExpiryTimeInSeconds maximumNumberOfActiveEntryLogs entryLogPerLedgerCounterLimitsMultFactor`)
	all(ImportObsolete, noteStats, `statsProviderClass prometheusStatsLatencyRolloverSeconds codahaleStatsPrefix codahaleStatsOutputFrequencySeconds codahaleStatsGraphiteEndpoint
		codahaleStatsCSVEndpoint codahaleStatsSlf4jEndpoint codahaleStatsJmxEndpoint codahaleStatsHttpServerPort`)
	all(ImportObsolete, noteTLS, `tlsProvider tlsClientAuthentication tlsKeyStoreType tlsKeyStore tlsKeyStorePasswordPath tlsCertificatePath tlsTrustStoreType tlsTrustStore
		tlsTrustStorePasswordPath tlsEnabledProtocols tlsEnabledCipherSuites authorizedRoles httpServerKeyStorePath httpServerKeyStorePassword
		httpServerTrustStorePath httpServerTrustStorePassword`)
	return m
}
