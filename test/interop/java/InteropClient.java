import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Drives the Java client of Apache BookKeeper by lines on standard input. Each line is a command with arguments, each answer one
 * line: "ok" and values, or "err", BookKeeper's code and a message. Clients, writers and readers have names that the caller
 * chooses. Entry e of ledger l has size + e mod 5 bytes; byte i is 7l + 13e + 31i.
 */
public final class InteropClient {
    private static final long WAIT_SECONDS = 60;

    private final Map<String, BookKeeper> clients = new HashMap<>();
    private final Map<String, WriteHandle> writers = new HashMap<>();
    private final Map<String, ReadHandle> readers = new HashMap<>();
    private final Map<String, CompletableFuture<LastConfirmedAndEntry>> polls = new HashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // nothing else may write to standard output
        InteropClient c = new InteropClient();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = "ok " + c.run(line.trim().split(" +"));
            } catch (Throwable t) {
                answer = error(t);
            }
            out.println(answer.trim());
            out.flush();
        }
        System.exit(0);
    }

    private static String error(Throwable t) {
        while ((t instanceof ExecutionException || t instanceof java.util.concurrent.CompletionException) && t.getCause() != null) {
            t = t.getCause();
        }
        int code = t instanceof BKException ? ((BKException) t).getCode() : -999;
        return "err " + code + " " + String.valueOf(t).replace('\n', ' ');
    }

    private static <T> T get(CompletableFuture<T> f) throws Exception {
        return f.get(WAIT_SECONDS, TimeUnit.SECONDS);
    }

    private String run(String[] a) throws Exception {
        switch (a[0]) {
            case "client": // NAME URI v2|v3
                ClientConfiguration conf = new ClientConfiguration();
                conf.setMetadataServiceUri(a[2]);
                conf.setUseV2WireProtocol(a[3].equals("v2"));
                conf.setAddEntryTimeout(5);
                conf.setReadEntryTimeout(5);
                conf.setExplictLacInterval(a[3].equals("v2") ? 0 : 200);
                conf.setProperty("batchReadEnabled", "true");
                clients.put(a[1], new BookKeeper(conf));
                return "";
            case "disconnect":
                clients.remove(a[1]).close();
                return "";
            case "create": { // CLIENT NAME E QW QA DIGEST PASSWORD FLAGS
                CreateBuilder b = clients.get(a[1]).newCreateLedgerOp()
                        .withEnsembleSize(Integer.parseInt(a[3])).withWriteQuorumSize(Integer.parseInt(a[4]))
                        .withAckQuorumSize(Integer.parseInt(a[5])).withDigestType(DigestType.valueOf(a[6]))
                        .withPassword(a[7].getBytes(StandardCharsets.UTF_8));
                if (a[8].equals("deferred")) {
                    b = b.withWriteFlags(WriteFlag.DEFERRED_SYNC);
                }
                WriteHandle w = get(b.execute());
                writers.put(a[2], w);
                return Long.toString(w.getId());
            }
            case "append": { // NAME COUNT SIZE
                WriteHandle w = writers.get(a[1]);
                int count = Integer.parseInt(a[2]);
                int size = Integer.parseInt(a[3]);
                List<CompletableFuture<Long>> acks = new ArrayList<>();
                long next = w.getLastAddPushed() + 1;
                for (int i = 0; i < count; i++) {
                    acks.add(w.appendAsync(Unpooled.wrappedBuffer(content(w.getId(), next + i, size))));
                }
                long last = -1;
                for (CompletableFuture<Long> f : acks) {
                    last = get(f);
                }
                return last + " " + w.getLastAddConfirmed();
            }
            case "force":
                get(writers.get(a[1]).force());
                return Long.toString(writers.get(a[1]).getLastAddConfirmed());
            case "close":
                writers.get(a[1]).close();
                return "";
            case "open": // CLIENT NAME ID DIGEST PASSWORD RECOVER
                readers.put(a[2], get(clients.get(a[1]).newOpenLedgerOp().withLedgerId(Long.parseLong(a[3]))
                        .withDigestType(DigestType.valueOf(a[4])).withPassword(a[5].getBytes(StandardCharsets.UTF_8))
                        .withRecovery(Boolean.parseBoolean(a[6])).execute()));
                return "";
            case "info": {
                ReadHandle r = readers.get(a[1]);
                return r.getLastAddConfirmed() + " " + r.getLength() + " " + r.isClosed();
            }
            case "lac":
                return Long.toString(readers.get(a[1]).readLastAddConfirmed());
            case "read":
                return entries(get(readers.get(a[1]).readAsync(Long.parseLong(a[2]), Long.parseLong(a[3]))));
            case "unconfirmed":
                return entries(get(readers.get(a[1]).readUnconfirmedAsync(Long.parseLong(a[2]), Long.parseLong(a[3]))));
            case "batch": // NAME FIRST COUNT BYTES
                return entries(get(readers.get(a[1]).batchReadAsync(Long.parseLong(a[2]), Integer.parseInt(a[3]), Long.parseLong(a[4]))));
            case "poll": // NAME ENTRY MILLIS
                polls.put(a[1], readers.get(a[1]).readLastAddConfirmedAndEntryAsync(Long.parseLong(a[2]), Long.parseLong(a[3]), false));
                return "";
            case "polled": {
                try (LastConfirmedAndEntry e = get(polls.remove(a[1]))) {
                    if (!e.hasEntry()) {
                        return e.getLastAddConfirmed() + " -1 -";
                    }
                    MessageDigest sum = MessageDigest.getInstance("SHA-256");
                    add(sum, e.getEntry());
                    return e.getLastAddConfirmed() + " " + e.getEntry().getEntryId() + " " + hex(sum.digest());
                }
            }
            case "forget": // a reader
                readers.remove(a[1]).close();
                return "";
            case "delete": // CLIENT ID
                get(clients.get(a[1]).newDeleteLedgerOp().withLedgerId(Long.parseLong(a[2])).execute());
                return "";
            default:
                throw new IllegalArgumentException("unknown command " + a[0]);
        }
    }

    private static byte[] content(long ledger, long entry, int size) {
        byte[] b = new byte[size + (int) (entry % 5)];
        for (int i = 0; i < b.length; i++) {
            b[i] = (byte) (7 * ledger + 13 * entry + 31L * i);
        }
        return b;
    }

    private static String entries(LedgerEntries all) throws Exception {
        try (LedgerEntries es = all) {
            MessageDigest sum = MessageDigest.getInstance("SHA-256");
            int n = 0;
            for (LedgerEntry e : es) {
                add(sum, e);
                n++;
            }
            return n + " " + hex(sum.digest());
        }
    }

    private static void add(MessageDigest sum, LedgerEntry e) {
        ByteBuf id = Unpooled.buffer(8).writeLong(e.getEntryId());
        sum.update(id.array(), 0, 8);
        sum.update(e.getEntryBytes());
    }

    private static String hex(byte[] b) {
        StringBuilder s = new StringBuilder();
        for (byte x : b) {
            s.append(String.format("%02x", x));
        }
        return s.toString();
    }
}
