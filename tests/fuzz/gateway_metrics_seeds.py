# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/gateway_metrics: pages of metrics (fuzz_gateway_metrics.c).

    python3 tests/fuzz/gateway_metrics_seeds.py
"""

import pathlib

FOLDER = pathlib.Path(__file__).parent / "corpus" / "gateway_metrics"

VLLM = """# HELP vllm:num_requests_waiting Number of requests.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="base"} 3.0
vllm:num_requests_running{model_name="b\\"}c"} 5 1712345678
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:gpu_cache_usage_perc 2
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters="c"} 1.7e9
"""

SEEDS = {
    "vllm": VLLM,
    "loaded": VLLM + 'vllm:lora_adapter_loaded{adapter_name="z",level="gpu"} 1\n'
                     'vllm:lora_adapter_loaded{adapter_name="y",level="cpu"} 1\n'
                     "vllm:max_gpu_lora_adapters 9",
    "protocol": 'model_server_requests_waiting{model="base"} 1\nmodel_server_requests_max 4\n'
                'model_server_adapter_requests{adapter="a",state="loaded"} 4\n'
                'model_server_adapters_max 2\n',
    "report": 'TEXT named_metrics.requests_waiting=3, named_metrics.adapter_requests.a:b=2',
    "concept": '{"a": 2, "b": 0}',
    "words": "vllm:num_requests_waiting NaN\nvllm:num_requests_running +Inf\n"
             "vllm:kv_cache_usage_perc -Inf\nvllm:lora_requests_info{max_lora=\"-1\"} NaN\n",
    "exemplar": 'vllm:num_requests_waiting{a="b"} 5 # {trace_id="x"} 77\n',
    "blanks": 'vllm:num_requests_waiting {a="b", c="d",} 8\r\nvllm:num_requests_running\t9\n\n',
    "torn": 'vllm:num_requests_waiting{a="b\nvllm:num_requests_running{\nvllm:\nvllm:x{} ',
    "long": 'vllm:num_requests_waiting{a="' + "x" * 4200 + '"} 1\nvllm:num_requests_running 2\n',
    "many": "".join(f'vllm:lora_adapter_loaded{{adapter_name="{i}"}} 1\n' for i in range(70)),
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in SEEDS.items():
        (FOLDER / name).write_bytes(b"\x06" + content.encode())
