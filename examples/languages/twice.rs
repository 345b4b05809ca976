// SPDX-License-Identifier: Apache-2.0
//! A modelet in Rust: it multiplies every number by the stage's parameter `factor`.
//!
//! The structures are those of <shoal/modelet.h>, with the functions that are not used as pointers;
//! `bindgen` would make all of them. Compile with panic=abort: a panic then ends the worker, as any
//! crash does, and Shoal runs the request again and logs the backtrace.
#![allow(non_upper_case_globals)]

use std::ffi::CStr;
use std::mem::size_of;
use std::os::raw::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::slice::from_raw_parts;

const OK: c_int = 0;
const INVALID_ARGUMENT: c_int = 3;
const FP32: u32 = 11;
const RUNS_BATCHES: u32 = 1;
const RANK_MAX: usize = 8;

#[repr(C)]
struct Error {
    text: [c_char; 256],
}

#[repr(C)]
struct Tensor {
    name: *const c_char,
    datatype: u32,
    rank: u32,
    shape: [i64; RANK_MAX],
    data: *mut c_void,
    bytes: usize,
}

#[repr(C)]
struct Item {
    status: i32,
    input_count: u32,
    inputs: *const Tensor,
    deadline_ns: i64,
}

#[repr(C)]
struct Batch {
    host: *const Host,
    count: u32,
    reserved: u32,
    items: *const *mut Item,
    error: *mut Error,
}

#[repr(C)]
struct Host {
    abi_version: u32,
    struct_size: u32,
    output: unsafe extern "C" fn(*mut Item, *const c_char, u32, u32, *const i64) -> *mut c_void,
    others: [*const c_void; 8],
}

#[repr(C)]
struct Param {
    name: *const c_char,
    value: *const c_char,
}

#[repr(C)]
struct Open {
    struct_size: u32,
    param_count: u32,
    params: *const Param,
    host: *const Host,
}

#[repr(C)]
struct TensorSpec {
    name: *const c_char,
    datatype: u32,
    rank: u32,
    shape: [i64; RANK_MAX],
}

#[repr(C)]
struct Io {
    struct_size: u32,
    input_count: u32,
    output_count: u32,
    reserved: u32,
    inputs: *const TensorSpec,
    outputs: *const TensorSpec,
    platform: *const c_char,
}

#[repr(C)]
pub struct Modelet {
    abi_version: u32,
    struct_size: u32,
    host_size: u32,
    batch_size: u32,
    item_size: u32,
    tensor_size: u32,
    abilities: u32,
    workers_max: u32,
    name: *const c_char,
    version: *const c_char,
    open: Option<unsafe extern "C" fn(*const Open, *mut *mut c_void, *mut Error) -> c_int>,
    describe: Option<unsafe extern "C" fn(*mut c_void, *mut Io, *mut Error) -> c_int>,
    load: *const c_void,
    unload: *const c_void,
    size: *const c_void,
    predict_size: *const c_void,
    run: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut Batch) -> c_int>,
    close: Option<unsafe extern "C" fn(*mut c_void)>,
    extension: *const c_void,
    describe_model: *const c_void,
    max_concurrency: *const c_void,
}

// Constants that nobody changes.
unsafe impl Sync for Modelet {}
unsafe impl Sync for TensorSpec {}

const fn text(bytes: &'static [u8]) -> *const c_char {
    bytes.as_ptr() as *const c_char
}

struct Instance {
    factor: f32,
}

impl Instance {
    fn new(params: &[Param]) -> Result<Instance, String> {
        let mut instance = Instance { factor: 1.0 };
        for param in params {
            let name = unsafe { CStr::from_ptr(param.name) }.to_string_lossy();
            let value = unsafe { CStr::from_ptr(param.value) }.to_string_lossy();
            if name != "factor" {
                return Err(format!("{name}: there is no such parameter"));
            }
            instance.factor = value.parse().map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(instance)
    }

    fn run(&self, x: &[f32], y: &mut [f32]) {
        for (to, from) in y.iter_mut().zip(x) {
            *to = self.factor * from;
        }
    }
}

unsafe extern "C" fn open(open: *const Open, instance: *mut *mut c_void, error: *mut Error) -> c_int {
    let params = match (*open).param_count {
        0 => &[],
        count => from_raw_parts((*open).params, count as usize),
    };
    match Instance::new(params) {
        Ok(made) => {
            *instance = Box::into_raw(Box::new(made)) as *mut c_void;
            OK
        }
        Err(why) => {
            let room = &mut (*error).text;
            for (to, from) in room[..255].iter_mut().zip(why.bytes()) {
                *to = from as c_char;
            }
            INVALID_ARGUMENT
        }
    }
}

unsafe extern "C" fn describe(_: *mut c_void, io: *mut Io, _: *mut Error) -> c_int {
    const ANY: [i64; RANK_MAX] = [-1; RANK_MAX];
    static x: TensorSpec = TensorSpec { name: text(b"x\0"), datatype: FP32, rank: 1, shape: ANY };
    static y: TensorSpec = TensorSpec { name: text(b"y\0"), datatype: FP32, rank: 1, shape: ANY };
    (*io).input_count = 1;
    (*io).output_count = 1;
    (*io).inputs = &x;
    (*io).outputs = &y;
    OK
}

unsafe extern "C" fn run(instance: *mut c_void, _: *mut c_void, batch: *mut Batch) -> c_int {
    let instance = &*(instance as *const Instance);
    let batch = &*batch;
    for &item in from_raw_parts(batch.items, batch.count as usize) {
        let x = &*(*item).inputs;
        let y = ((*batch.host).output)(item, text(b"y\0"), FP32, x.rank, x.shape.as_ptr());
        if y == null_mut() {
            continue; // status and text are set already
        }
        let count = x.bytes / size_of::<f32>();
        instance.run(
            from_raw_parts(x.data as *const f32, count),
            std::slice::from_raw_parts_mut(y as *mut f32, count),
        );
        (*item).status = OK;
    }
    OK
}

unsafe extern "C" fn close(instance: *mut c_void) {
    drop(Box::from_raw(instance as *mut Instance));
}

#[no_mangle]
pub static shoal_modelet: Modelet = Modelet {
    abi_version: 1,
    struct_size: size_of::<Modelet>() as u32,
    host_size: size_of::<Host>() as u32,
    batch_size: size_of::<Batch>() as u32,
    item_size: size_of::<Item>() as u32,
    tensor_size: size_of::<Tensor>() as u32,
    abilities: RUNS_BATCHES,
    workers_max: 0,
    name: text(b"twice\0"),
    version: text(b"0.1.0\0"),
    open: Some(open),
    describe: Some(describe),
    load: null(),
    unload: null(),
    size: null(),
    predict_size: null(),
    run: Some(run),
    close: Some(close),
    extension: null(),
    describe_model: null(),
    max_concurrency: null(),
};
