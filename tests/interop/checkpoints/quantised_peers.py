"""Weights quantised and made values again by the programs that define the forms: compressed-tensors, ModelOpt, transformers,
and slime's formula, which is a few lines of PyTorch. Everything runs on a CPU."""
import torch

E4M3 = torch.float8_e4m3fn
FORMS = ['fp8', 'fp8-ue8m0', 'fp8-channel', 'fp8-tensor', 'mxfp8', 'mxfp4', 'nvfp4', 'nvfp4-packed', 'int4', 'int4-g128', 'int4-zp', 'int4-g128-zp']
COLUMNS = {'mxfp8': 32, 'mxfp4': 32, 'nvfp4': 16, 'nvfp4-packed': 16, 'int4': 32, 'int4-zp': 32, 'int4-g128': 128, 'int4-g128-zp': 128}

def scheme_of(form):
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    group = {'group_size': COLUMNS.get(form)}
    weights = {
        'fp8-tensor': dict(num_bits=8, type='float', strategy='tensor'),
        'fp8-channel': dict(num_bits=8, type='float', strategy='channel'),
        'mxfp4': dict(num_bits=4, type='float', strategy='group', scale_dtype=torch.uint8, zp_dtype=torch.uint8, **group),
        'nvfp4-packed': dict(num_bits=4, type='float', strategy='tensor_group', scale_dtype=E4M3, zp_dtype=E4M3, **group),
    }.get(form) or dict(num_bits=4, type='int', strategy='group', symmetric='zp' not in form, **group)
    return QuantizationScheme(targets=['Linear'], weights=QuantizationArgs(**weights))

def compressor_of(form):
    from compressed_tensors.compressors import mxfp4, naive_quantized, nvfp4, pack_quantized
    return {'mxfp4': mxfp4.MXFP4PackedCompressor, 'nvfp4-packed': nvfp4.NVFP4PackedCompressor}.get(form) or (
        naive_quantized.NaiveQuantizationCompressor if form.startswith('fp8') else pack_quantized.PackedQuantizationCompressor)

def by_compressed_tensors(form, weight, others):
    """`others`: weights that have one second scale with this one, itself among them. Extremes are of the weights' type, as observers take them."""
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
    scheme = scheme_of(form)
    state, extra = {'weight': weight}, {}
    if form.startswith('fp8'):
        axis = dict(dim=-1, keepdim=True) if form == 'fp8-channel' else {}
        scale = (weight.abs().amax(**axis).clamp(min=1e-12).float() / 448)
        state['weight_scale'] = scale if form == 'fp8-channel' else scale.view(1)
    else:
        groups = weight.unflatten(-1, (-1, COLUMNS[form]))
        if form == 'nvfp4-packed':
            extra['global_scale'] = torch.stack([generate_gparam(w.min(), w.max()) for w in others]).min(0).values
            state['weight_global_scale'] = extra['global_scale']
        scales, zeros = calculate_qparams(groups.amin(-1), groups.amax(-1), scheme.weights, **extra)
        state['weight_scale'] = scales.to(weight.dtype)
        if 'zp' in form: state['weight_zero_point'] = zeros.to(torch.int8)
    return compressor_of(form).compress(state, scheme)

def by_slime(weight):
    """block_fp8 of tools/convert_hf_to_fp8.py; blocks of zeros as its first version has them."""
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -columns % 128, 0, -rows % 128))
    blocks = padded.unflatten(0, (-1, 128)).unflatten(2, (-1, 128))
    scale = blocks.abs().amax((1, 3), keepdim=True).clamp(min=1e-12).float() / 448
    codes = (blocks / scale).clamp(-448, 448).to(E4M3).flatten(2).flatten(0, 1)
    return {'weight': codes[:rows, :columns].contiguous(), 'weight_scale_inv': scale[:, 0, :, 0].contiguous()}

def by_transformers(weight):
    """Blocks are whole ones, as zeros around the weight make them: transformers leaves others as they are."""
    from types import SimpleNamespace
    from transformers import FineGrainedFP8Config
    from transformers.integrations.finegrained_fp8 import Fp8Quantize
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -columns % 128, 0, -rows % 128))
    settings = SimpleNamespace(quantization_config=FineGrainedFP8Config(weight_block_size=(128, 128), scale_fmt='ue8m0'))
    parts = Fp8Quantize(settings)._quantize_one('layer.weight', padded)
    return {'weight': parts['layer.weight'][:rows, :columns].contiguous(), 'weight_scale_inv': parts['layer.weight_scale_inv']}

def by_model_opt(form, weight, others):
    import modelopt.torch.quantization.qtensor as qtensor
    if form == 'mxfp8':
        codes, scale = qtensor.MXFP8QTensor.quantize(weight)
        return {'weight': codes._quantized_data, 'weight_scale_inv': scale}
    second = qtensor.NVFP4QTensor.get_weights_scaling_factor_2(torch.stack([w.abs().max() for w in others]))
    codes, scale, second = qtensor.NVFP4QTensor.quantize(weight, 16, weights_scaling_factor_2=second)
    return {'weight': codes._quantized_data, 'weight_scale': scale, 'weight_scale_2': second.reshape([]), 'input_scale': torch.tensor(1.0)}

def quantise(form, weight, others=None):
    """The parts of a weight by the ends of their names."""
    if form == 'fp8': return by_slime(weight)
    if form == 'fp8-ue8m0': return by_transformers(weight)
    if form in ('mxfp8', 'nvfp4'): return by_model_opt(form, weight, others or [weight])
    return by_compressed_tensors(form, weight, others or [weight])

def values(form, parts, dtype=torch.bfloat16):
    """What the parts stand for, by the program that made them."""
    if form in ('fp8', 'fp8-ue8m0'):
        from transformers.integrations.finegrained_fp8 import Fp8Dequantize
        return Fp8Dequantize(None)._dequantize_one(parts['weight'], parts['weight_scale_inv'], dtype)
    if form in ('mxfp8', 'nvfp4'):
        import modelopt.torch.quantization.qtensor as qtensor
        codes, shape = parts['weight'], list(parts['weight'].shape)
        if form == 'mxfp8': return qtensor.MXFP8QTensor(shape, dtype, codes).dequantize(dtype, scale=parts['weight_scale_inv'])
        shape[-1] *= 2
        return qtensor.NVFP4QTensor(shape, dtype, codes).dequantize(
            dtype, scale=parts['weight_scale'], double_scale=parts['weight_scale_2'], block_sizes={-1: 16})
    state = dict(parts)
    return compressor_of(form).decompress(state, scheme_of(form))['weight'].to(dtype)

def gpt_oss_parts(weight):
    """[experts, in, out] to blocks and scales along `in`: what downcast_to_mxfp_torch of triton_kernels
    (numerics_details/mxfp.py) says, which needs Triton to be imported; transformers reads the result."""
    rows = weight.transpose(1, 2).bfloat16().float().unflatten(-1, (-1, 32))
    bits = (rows.abs().amax(-1, keepdim=True) / 6).view(torch.int32)
    exponent = (bits + 0x7fffff) >> 23
    scale = (exponent << 23).view(torch.float32)
    scaled = rows * torch.where(scale == 0, 0.0, 1 / scale)
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    middle = (numbers[1:] + numbers[:-1]) / 2
    magnitude = scaled.abs()
    code = torch.searchsorted(middle, magnitude.contiguous())
    code = code + ((magnitude.unsqueeze(-1) == middle[[1, 3, 5]]).any(-1)).long()  # ties to even codes
    code = (code + torch.signbit(scaled).long() * 8).to(torch.uint8)
    return {'blocks': (code[..., 0::2] | code[..., 1::2] << 4).contiguous(), 'scales': exponent.squeeze(-1).to(torch.uint8)}

def gpt_oss_values(parts, dtype=torch.bfloat16):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    return convert_moe_packed_tensors(parts['blocks'], parts['scales'], dtype=dtype)
