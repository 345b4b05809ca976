// SPDX-License-Identifier: Apache-2.0
package com.ibm.watson.litelinks.server;

import com.google.common.util.concurrent.AbstractExecutionThreadService;
import com.google.common.util.concurrent.Service;

import java.io.IOException;
import java.net.HttpURLConnection;
import java.net.URL;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * Stands before litelinks' class of this name on the class path of ModelMesh's tests, and starts
 * $SHOALD where that one starts ModelMesh: for a test that has it in its own process, and as the
 * program that a test launches. The node is killed when the JVM dies.
 */
public final class LitelinksService {
    private static final long READY_SECONDS = 30;

    /** The environment of the node, as far as the test says it here. */
    public static final class ServiceDeploymentConfig {
        private final Map<String, String> variables = new HashMap<>();

        public ServiceDeploymentConfig(Class<?> unused) {
        }

        public ServiceDeploymentConfig setServiceName(String name) {
            variables.put("MM_SERVICE_NAME", name);
            return this;
        }

        public ServiceDeploymentConfig setInstanceId(String id) {
            variables.put("WKUBE_POD_NAME", id);
            return this;
        }

        public ServiceDeploymentConfig setServiceVersion(String unused) {
            return this;
        }

        public ServiceDeploymentConfig setServiceRegistry(String unused) {
            return this; // litelinks' own; the mesh's is KV_STORE
        }

        public ServiceDeploymentConfig setZkConnString(String unused) {
            return this;
        }
    }

    private LitelinksService() {
    }

    public static Service createService(ServiceDeploymentConfig config) {
        return new AbstractExecutionThreadService() {
            private Process node;

            @Override
            protected void startUp() throws Exception {
                node = start(config.variables);
                awaitReady(node);
            }

            @Override
            protected void run() throws Exception {
                int code = node.waitFor();
                if (isRunning()) {
                    throw new IOException("shoald ended with " + code);
                }
            }

            @Override
            protected void triggerShutdown() {
                node.destroy();
            }
        };
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> options = Map.of("-n", "MM_SERVICE_NAME", "-i", "WKUBE_POD_NAME",
                "-h", "MM_PROBE_PORT");
        Map<String, String> variables = new HashMap<>();
        for (int i = 0; i + 1 < args.length; i += 2) {
            if (options.containsKey(args[i])) {
                variables.put(options.get(args[i]), args[i + 1]);
            }
        }
        Process node = start(variables);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            node.destroy();
            node.onExit().join();
        }));
        System.exit(node.waitFor());
    }

    /** ModelMesh takes each variable of its environment from a property of the JVM, too. */
    private static Process start(Map<String, String> variables) throws IOException {
        Path folder = Files.createTempDirectory(Path.of(System.getenv("INTEROP_FOLDER")), "node.");
        Path file = folder.resolve("shoald.yaml");
        ProcessBuilder builder = new ProcessBuilder("setpriv", "--pdeathsig", "KILL",
                System.getenv("SHOALD"), "--no-pin", file.toString()).inheritIO();
        Map<String, String> environment = builder.environment();
        for (String name : System.getProperties().stringPropertyNames()) {
            if (name.matches("[A-Z_]+")) {
                environment.put(name, System.getProperty(name));
            }
        }
        environment.putAll(variables);
        environment.put("MM_PRESTOP_WAIT_PORT", "NONE");
        boolean etcd = environment.getOrDefault("KV_STORE", "").startsWith("etcd:");
        if (!etcd) {
            environment.put("KV_STORE", "memory"); // for ZooKeeper
        }
        Files.writeString(file, "counters: " + folder.resolve("counters") + "\n"
                + (etcd ? "mesh: { peers: [\"127.0.0.1:0\"], fail_fast: yes }\n" : ""));
        return builder.start();
    }

    private static void awaitReady(Process node) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(READY_SECONDS);
        while (!isReady()) {
            if (!node.isAlive()) {
                throw new IOException("shoald ended with " + node.exitValue());
            }
            if (System.nanoTime() > end) {
                throw new IOException("shoald is not ready within " + READY_SECONDS + " s");
            }
            Thread.sleep(20);
        }
    }

    private static boolean isReady() {
        try {
            URL url = new URL("http://127.0.0.1:8089/ready");
            return ((HttpURLConnection) url.openConnection()).getResponseCode() == 200;
        } catch (IOException notYet) {
            return false;
        }
    }
}
